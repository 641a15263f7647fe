"""Text to vector: load, encode, save."""
