"""CMSIS-NN's int8 kernels as exact integer functions of torch tensors.

Every function computes, bit for bit, the result of the kernel of the same name with CMSIS-NN's
default (double) rounding. The functions work on whole tensors, so that a MobileNet runs in a second
on a desktop CPU. Accumulators are computed in float64, in which every partial sum of int8 products
is exact, and then wrapped to int32 like those of the C code.
"""

from stepwell.dialects.cmsis.kernels.convolution import (
    conv_s8,
    depthwise_conv_s8,
    transpose_conv_s8,
)
from stepwell.dialects.cmsis.kernels.elementwise import (
    activation_table_s8,
    elementwise_add_s8,
    elementwise_div,
    elementwise_mul_s8,
)
from stepwell.dialects.cmsis.kernels.matmul import batch_matmul_s8, fully_connected_s8
from stepwell.dialects.cmsis.kernels.movement import pad_s8, transpose_s8
from stepwell.dialects.cmsis.kernels.pooling import avgpool_s8, max_pool_s8
from stepwell.dialects.cmsis.kernels.quantize import dequantize_per_tensor, quantize_per_tensor

__all__ = [
    "activation_table_s8",
    "avgpool_s8",
    "batch_matmul_s8",
    "conv_s8",
    "depthwise_conv_s8",
    "dequantize_per_tensor",
    "elementwise_add_s8",
    "elementwise_div",
    "elementwise_mul_s8",
    "fully_connected_s8",
    "max_pool_s8",
    "pad_s8",
    "quantize_per_tensor",
    "transpose_conv_s8",
    "transpose_s8",
]
