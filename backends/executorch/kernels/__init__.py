"""Kernels of ExecuTorch's runtime: the available ones, and their arguments."""
