"""Lowerings of PyTorch's operators to OpenVINO's, and the pass pipeline."""
