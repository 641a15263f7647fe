"""Whole files and folders to vectors on disk: one file or resumable shards, on this machine or on Ray."""
