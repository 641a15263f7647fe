"""The built-in corpus: the docstrings of the installed Python packages."""
