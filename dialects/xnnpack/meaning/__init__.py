"""Semantics of each node, as XNNPACK's kernels compute it."""

from stepwell.dialects.xnnpack.meaning import elementwise, engines, matmul, movement, spatial
from stepwell.dialects.xnnpack.meaning.arithmetic import DynamicTensor

__all__ = ["DynamicTensor", "elementwise", "engines", "matmul", "movement", "spatial"]
