"""The reader's own PDF of the paper: its paragraphs, and the weights drawn in its figures."""
