"""Attention: recognition, expansion, masks, heads and softmax."""
