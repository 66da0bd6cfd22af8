"""Legalization: a convolution of a row that CMSIS-NN would misread is one of a column.

For an image of height 1, MVE builds run `arm_convolve_1_x_n_s8`. It returns an error unless the
windows reach as far beyond the end of the row as beyond its begin, or one cell farther; with a
stride it then reads cells behind the row instead of padding (`is_misread_row`). An image of width 1
has the same bytes, and its kernel supports any padding. Other builds run that kernel for both.

rule turn-row
    Both axes, the kernel's and the parameters' change places; nothing is copied.
Before:
    %y = cmsis.quantized_conv2d_nhwc(%x, %w, …) : (…) -> $Y
After:
    %y = turned(%x, $key, %w, %y)
where is_misread(%y) for target
with $key = constant_of(%w)
for %v = weight : tensor<2 x 1 x 3 x 4 x i8>
for %w = quant.scast(%v) : (…) -> $W
for $input_offset = -3, $output_offset = -1, $scratch = 0
for $requantize_multipliers = [1073741824, 1073741824], $requantize_shifts = [-3, -3]
for $activation_max = 127, $activation_min = -128
for $stride = [1, 2], $dilation = [1, 1], $padding = [0, 1]
for %x = "tensor<1x1x8x4x!quant.uniform<i8:f32, 0.5:3>>"
for $W = "tensor<2x1x3x4x!quant.uniform<i8<-127:127>:f32, 0.25>>"
for $Y = "tensor<1x1x4x2x!quant.uniform<i8:f32, 2.0:-1>>"
not for %x = "tensor<1x1x9x4x!quant.uniform<i8:f32, 0.5:3>>", $Y = "tensor<1x1x5x2x!quant.uniform<i8:f32, 2.0:-1>>"
"""

from __future__ import annotations

from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects.cmsis.ops import QuantizedConv2dNhwc
from stepwell.dialects.cmsis.ops.base import to_attribute
from stepwell.dialects.cmsis.ops.spatial import is_misread_row
from stepwell.dialects.quant import StorageCast
from stepwell.ir.core import weight_key
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.quantized.recognize import typed_weight
from stepwell.translate.rewrites.cmsis.layout.reshape import reshaped
from stepwell.translate.rules import read_rules


def is_misread(result: SSAValue) -> bool:
    """Whether the kernel for a row computes this convolution wrongly, or fails."""
    return is_misread_row(cast(QuantizedConv2dNhwc, result.owner))


def constant_of(weight: SSAValue) -> str | Refusal:
    """Return the key of a constant weight."""
    typed = weight.owner
    key = weight_key(typed.input) if isinstance(typed, StorageCast) else None
    return Refusal("the weight is computed at run time") if key is None else key


def turned(rw: Rewriter, row: SSAValue, key: str, weight: SSAValue, result: SSAValue) -> SSAValue:
    """Build the convolution of a column, between views."""
    op = cast(QuantizedConv2dNhwc, result.owner)
    (n, h, w, c), (o, kh, kw, ci), (_, oh, ow, _) = (
        dims(value.type) for value in (row, weight, result)
    )
    column = reshaped(rw, row, (n, w, h, c))
    shape = (o, kw, kh, ci)
    derived = rw.weights.derive("cmsis.reshape", [key], shape=list(shape))
    filter_ = typed_weight(rw, derived, tensor(shape, element(weight.type)))
    lists = {
        name: to_attribute(list(reversed(op.numbers(name))))
        for name in ("stride", "padding", "dilation")
    }
    new = QuantizedConv2dNhwc.create(
        operands=[column, filter_, *op.operands[2:]],
        result_types=[tensor((n, ow, oh, o), element(result.type))],
        properties={**op.properties, **lists},
    )
    return reshaped(rw, rw.insert(new).results[0], dims(result.type))


(TurnRow,) = RULES = read_rules(__doc__, globals())
