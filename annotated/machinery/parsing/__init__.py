"""Constituency trees: treebanks, trees as lines of a corpus, EVALB, and drawings."""
