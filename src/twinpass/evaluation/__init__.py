"""Judging vectors: protocols, tasks, confidence."""
