"""CMSIS-NN's int8 kernels as exact integer functions of torch tensors.

Every function computes, bit for bit, what the kernel of the same name computes with CMSIS-NN's
default (double) rounding. They are written over whole tensors, so that a MobileNet runs on the
desk in a second; accumulators are formed in float64, which holds every partial sum of int8
products exactly, and then wrapped to int32 as the C code's are.
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
from stepwell.dialects.cmsis.kernels.softmax import softmax_s8

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
    "softmax_s8",
    "transpose_conv_s8",
    "transpose_s8",
]
