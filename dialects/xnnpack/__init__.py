"""The `xnnpack` dialect: one operation for each node of ExecuTorch's XNNPACK schema.

Source: `schema.fbs` in `executorch/backends/xnnpack/serialization`, `xnnpack.h` of XNNPACK.
"""

from pathlib import Path

from xdsl.ir import Dialect

from stepwell.dialects.xnnpack import shapes
from stepwell.dialects.xnnpack.base import NODES, XnnpackOp
from stepwell.dialects.xnnpack.datatypes import DynamicInt8Type, datatype
from stepwell.dialects.xnnpack.delegate import MAX_EXTERNALS, DelegateOp, YieldOp
from stepwell.dialects.xnnpack.elementwise import (
    ELU,
    Abs,
    Add,
    Clamp,
    Convert,
    Copy,
    Divide,
    LeakyReLU,
    Maximum,
    Minimum,
    Multiply,
    Negate,
    PReLU,
    Sigmoid,
    Square,
    SquareRoot,
    Subtract,
)
from stepwell.dialects.xnnpack.matmul import (
    BatchMatrixMultiply,
    FullyConnected,
    ScaledDotProductAttention,
)
from stepwell.dialects.xnnpack.movement import (
    CONCATENATES,
    Concatenate2,
    Concatenate3,
    StaticConstantPad,
    StaticReshape,
    StaticSlice,
    StaticTranspose,
)
from stepwell.dialects.xnnpack.spatial import (
    ArgMaxPooling2d,
    AveragePooling2d,
    Convolution2d,
    Deconvolution2d,
    DepthwiseConvolution2d,
    GlobalAveragePooling2d,
    MaxPooling2d,
    StaticResizeBilinear2d,
)
from stepwell.ir.declared.engine_behavior import table_stands_in
from stepwell.ir.declared.interpretation import meaning_stands_in

Xnnpack = Dialect("xnnpack", [*NODES.values(), DelegateOp, YieldOp], [DynamicInt8Type])

meaning_stands_in("xnnpack", "stepwell.dialects.xnnpack.meaning")
table_stands_in("xnnpack", Path(__file__).with_name("special_values.json"))

__all__ = [
    "CONCATENATES",
    "ELU",
    "MAX_EXTERNALS",
    "NODES",
    "Abs",
    "Add",
    "ArgMaxPooling2d",
    "AveragePooling2d",
    "BatchMatrixMultiply",
    "Clamp",
    "Concatenate2",
    "Concatenate3",
    "Convert",
    "Convolution2d",
    "Copy",
    "Deconvolution2d",
    "DelegateOp",
    "DepthwiseConvolution2d",
    "Divide",
    "DynamicInt8Type",
    "FullyConnected",
    "GlobalAveragePooling2d",
    "LeakyReLU",
    "MaxPooling2d",
    "Maximum",
    "Minimum",
    "Multiply",
    "Negate",
    "PReLU",
    "ScaledDotProductAttention",
    "Sigmoid",
    "Square",
    "SquareRoot",
    "StaticConstantPad",
    "StaticReshape",
    "StaticResizeBilinear2d",
    "StaticSlice",
    "StaticTranspose",
    "Subtract",
    "Xnnpack",
    "XnnpackOp",
    "YieldOp",
    "datatype",
    "shapes",
]
