"""PyTorch's private names and globals."""
