"""ExecuTorch's program container, the .pte file."""
