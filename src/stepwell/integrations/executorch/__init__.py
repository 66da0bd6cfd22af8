"""stepwell in ExecuTorch's own flow: a partitioner, passes, recipes and bundled programs."""
