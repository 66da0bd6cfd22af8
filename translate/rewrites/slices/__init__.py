"""Rewrites of slices, concatenations, paddings and writes to parts of tensors."""
