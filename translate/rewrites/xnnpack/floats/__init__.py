"""Halves, bfloat16 and mixed types: nodes compute in fewer types than PyTorch."""
