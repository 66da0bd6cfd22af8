"""Read delegates of ExecuTorch's Vulkan backend."""
