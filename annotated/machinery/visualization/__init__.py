"""Attention as pictures: weights of a sentence, lines and heat maps."""
