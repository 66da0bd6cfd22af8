"""PyTorch's own quantization flow (PT2E): quantizers that annotate what stepwell lowers."""
