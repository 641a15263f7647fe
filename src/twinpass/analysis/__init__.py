"""What contrastive learning does to a space, measured and drawn (sections 5 and 7, appendices F and G)."""
