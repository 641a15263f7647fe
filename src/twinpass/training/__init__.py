"""Learning: objectives, the loop, checkpoints."""
