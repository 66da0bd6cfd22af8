"""stepwell inside ExecuTorch's own flow."""
