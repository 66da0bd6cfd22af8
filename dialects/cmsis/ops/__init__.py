"""The ops of the `cmsis` dialect, one per operator of ExecuTorch's `cortex_m` library."""

from stepwell.dialects.cmsis.ops.base import OPERATORS, CmsisOp
from stepwell.dialects.cmsis.ops.elementwise import (
    Maximum,
    Minimum,
    QuantizedActivation,
    QuantizedAdd,
    QuantizedDiv,
    QuantizedMul,
)
from stepwell.dialects.cmsis.ops.matmul import QuantizedBatchMatmul, QuantizedLinear
from stepwell.dialects.cmsis.ops.movement import (
    DequantizePerTensor,
    Pad,
    QuantizePerTensor,
    Relabel,
    Transpose,
)
from stepwell.dialects.cmsis.ops.places import Copy, Join, Part
from stepwell.dialects.cmsis.ops.pooling import (
    QuantizedAvgPool2d,
    QuantizedAvgPool2dNhwc,
    QuantizedMaxPool2d,
    QuantizedMaxPool2dNhwc,
)
from stepwell.dialects.cmsis.ops.softmax import Softmax
from stepwell.dialects.cmsis.ops.spatial import (
    QuantizedConv2d,
    QuantizedConv2dNhwc,
    QuantizedDepthwiseConv2d,
    QuantizedDepthwiseConv2dNhwc,
    QuantizedTransposeConv2d,
    QuantizedTransposeConv2dNhwc,
)

LIBRARY_OPS = tuple(OPERATORS)

__all__ = [
    "LIBRARY_OPS",
    "CmsisOp",
    "Copy",
    "DequantizePerTensor",
    "Join",
    "Maximum",
    "Minimum",
    "Pad",
    "Part",
    "QuantizePerTensor",
    "QuantizedActivation",
    "QuantizedAdd",
    "QuantizedAvgPool2d",
    "QuantizedAvgPool2dNhwc",
    "QuantizedBatchMatmul",
    "QuantizedConv2d",
    "QuantizedConv2dNhwc",
    "QuantizedDepthwiseConv2d",
    "QuantizedDepthwiseConv2dNhwc",
    "QuantizedDiv",
    "QuantizedLinear",
    "QuantizedMaxPool2d",
    "QuantizedMaxPool2dNhwc",
    "QuantizedMul",
    "QuantizedTransposeConv2d",
    "QuantizedTransposeConv2dNhwc",
    "Relabel",
    "Softmax",
    "Transpose",
]
