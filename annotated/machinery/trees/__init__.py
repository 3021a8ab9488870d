"""Trees for section 6.3: treebanks, trees as token sequences, EVALB, drawings."""
