"""What searches vectors: exactly, by a graph or by codes, and on Milvus."""
