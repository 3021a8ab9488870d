"""Training runs: the trainer, its processes, its folder, and the runs of Table 3."""
