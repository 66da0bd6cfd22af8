"""The `cmsis` dialect: CMSIS-NN's operators as ExecuTorch's `cortex_m` library calls them."""

from xdsl.ir import Dialect

from stepwell.dialects.cmsis.level import CMSIS_LEVEL
from stepwell.dialects.cmsis.ops import LIBRARY_OPS, CmsisOp, Copy, Join, Part, Relabel

Cmsis = Dialect("cmsis", [*LIBRARY_OPS, Relabel, Part, Join, Copy], [])

__all__ = ["CMSIS_LEVEL", "LIBRARY_OPS", "Cmsis", "CmsisOp", "Copy", "Join", "Part", "Relabel"]
