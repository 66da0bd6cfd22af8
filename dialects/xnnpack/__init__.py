"""One operation for each node of ExecuTorch's XNNPACK sub-graph schema."""
