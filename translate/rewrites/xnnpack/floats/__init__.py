"""Rewrites of halves, bfloat16 and mixed types, of which XNNPACK's nodes support fewer than
PyTorch.
"""
