"""What each node computes, as XNNPACK's kernels do."""

from stepwell.dialects.xnnpack.meaning import elementwise, engines, matmul, movement, spatial
from stepwell.dialects.xnnpack.meaning.arithmetic import DynamicTensor

__all__ = ["DynamicTensor", "elementwise", "engines", "matmul", "movement", "spatial"]
