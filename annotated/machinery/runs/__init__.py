"""A training run: its folder, its batches, its checkpoints, and the training loop."""
