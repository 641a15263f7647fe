"""Text input: readers, the built-in corpus, inference data, views and batches."""
