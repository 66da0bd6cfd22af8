"""Raising: from the ops of a target's level back to PyTorch's operators."""
