"""The HTTP service: a model, and perhaps an index, for clients that already speak OpenAI's embeddings API."""
