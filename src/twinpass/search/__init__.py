"""Finding neighbours: indexes and what searches them."""
