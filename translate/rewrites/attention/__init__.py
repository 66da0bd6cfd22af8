"""Attention: recognised, expanded, its masks, heads and softmax."""
