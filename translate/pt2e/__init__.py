"""PyTorch's own quantisation flow: quantizers that annotate what this project lowers."""
