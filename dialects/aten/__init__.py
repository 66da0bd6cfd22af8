"""ATen operators, declared from PyTorch's own schemas."""
