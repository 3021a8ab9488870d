"""Attention as pictures: the weights for a sentence, line charts and heat maps."""
