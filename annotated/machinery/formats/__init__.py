"""Models as files: our own, published ones, and those of other programs."""
