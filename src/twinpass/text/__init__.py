"""Sentences in: readers, the built-in corpus, views and batches."""
