"""Kernels of ExecuTorch's runtime: which there are, and what they take."""
