"""stepwell: a multi-level IR for ExecuTorch.

A PyTorch program walks down through readable, verified levels of IR to what a device runs,
and each of those can be read back up.
"""


def __getattr__(name: str) -> object:
    raise AttributeError(f"module 'stepwell' has no attribute {name!r}")
