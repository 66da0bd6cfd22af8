"""Attention: recognized, expanded, its masks, heads and softmax."""
