"""PyTorch's own quantization flow: quantizers that annotate what this project lowers."""
