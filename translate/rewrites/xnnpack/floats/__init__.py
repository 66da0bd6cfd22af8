"""Halves, bfloat16 and mixtures, where nodes compute in fewer types than PyTorch."""
