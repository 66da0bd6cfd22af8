"""Rewrites of constants: folding, and numbers in the place of tensor operands."""
