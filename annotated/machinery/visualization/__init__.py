"""Attention weights of a model, collected and drawn."""
