"""The laboratory: every table and figure of the paper as data, and what runs them."""
