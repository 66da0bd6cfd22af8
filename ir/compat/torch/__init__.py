"""Access to PyTorch's private names and process-wide globals."""
