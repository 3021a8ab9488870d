"""One training run: its folder, its batches, its checkpoints, and the loop that learns."""
