"""Run programs on ExecuTorch's runtime, here or on an emulated core."""
