"""Layout: flatten a layer's image in its memory order, and permute the weight's columns
accordingly.

`flatten` after a convolution reads NCHW, so the NHWC result would be transposed first. A linear
layer's sum does not depend on the order of its terms. The columns of the constant weight are
therefore permuted at compile time, and the flattening is a view.

rule absorb-flatten
    linear(flatten(transpose(x)), w) → linear(flatten(x), permuted w).
Before:
    %y = $layer of LAYERS(%x, %w, …) : (…) -> $Y
After:
    %r = in_order_of_memory($transpose, %x)
    %c = permuted_columns($key, $transpose, %w)
    %y = $layer(%r, %c, …)
with $transpose = flattened_transpose(%x)
where is_of_images(%y, $transpose)
with $key = own_weight_of(%y)
for %v = weight : tensor<1 x 12 x i8>
for %w = quant.scast(%v) : (…) -> $W
for %t = cmsis.transpose(%i, perm=[0, 3, 1, 2]) : (…) -> $T
for %n = quant.scast(%t) : (…) -> tensor<2 x 3 x 2 x 2 x i8>
for %f = aten.view.default(%n, [2, 12])
for %x = quant.scast(%f) : (…) -> $X
for $layer = "cmsis.quantized_linear", $input_offset = -3, $filter_offset = 0, $output_offset = -1
for $requantize_multipliers = [1073741824], $requantize_shifts = [-3]
for $activation_max = 127, $activation_min = -128
for %i = "tensor<2x2x2x3x!quant.uniform<i8:f32, 0.5:3>>", $W = "tensor<1x12x!quant.uniform<i8:f32, 0.25>>"
for $Y = "tensor<2x1x!quant.uniform<i8:f32, 2.0:-1>>"
for $T = "tensor<2x3x2x2x!quant.uniform<i8:f32, 0.5:3>>", $X = "tensor<2x12x!quant.uniform<i8:f32, 0.5:3>>"
not for %f = aten.view.default(%n, [1, 24]); %v = weight : tensor<1 x 24 x i8>;
    $W = "tensor<1x24x!quant.uniform<i8:f32, 0.25>>",
    $X = "tensor<1x24x!quant.uniform<i8:f32, 0.5:3>>",
    $Y = "tensor<1x1x!quant.uniform<i8:f32, 2.0:-1>>"
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects.aten.reshapes import only_reshapes
from stepwell.dialects.cmsis.ops import QuantizedConv2dNhwc, QuantizedLinear, Transpose
from stepwell.dialects.quant import StorageCast
from stepwell.ir.core import weight_key
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import AnyTensor, dims, is_static
from stepwell.translate.quantized.recognize import typed_weight
from stepwell.translate.rewrites.cmsis.layout.reshape import reshaped
from stepwell.translate.rules import read_rules

Layer = QuantizedLinear | QuantizedConv2dNhwc
LAYERS = (QuantizedLinear, QuantizedConv2dNhwc)


def is_of_images(value: SSAValue, transpose: Transpose) -> bool:
    """Whether the rows of the linear layer's operand are whole images."""
    return flattens(cast(Layer, value.owner), transpose.out, transpose.numbers("perm"))


def own_weight_of(value: SSAValue) -> str | Refusal:
    """Return the key of the weight of the layer whose result is `value`."""
    return own_weight(cast(Layer, value.owner))


def in_order_of_memory(rw: Rewriter, transpose: Transpose, like: SSAValue) -> SSAValue:
    """Return the image before its transpose, flattened in its memory order."""
    return reshaped(rw, transpose.input, dims(like.type))


def permuted_columns(rw: Rewriter, key: str, transpose: Transpose, weight: SSAValue) -> SSAValue:
    """Permute the columns of the weight to the order of the image that was transposed."""
    order = transpose.numbers("perm")
    shape, image = dims(weight.type), dims(transpose.out.type)[1:]
    back = [order.index(axis) for axis in range(len(order))]
    derive = rw.weights.derive
    key = derive("cmsis.reshape", [key], shape=[shape[0], *image])
    key = derive("cmsis.permute", [key], permutation=back)
    key = derive("cmsis.reshape", [key], shape=list(shape))
    return typed_weight(rw, key, cast(AnyTensor, weight.type))


def flattens(op: Layer, image: SSAValue, order: Sequence[int]) -> bool:
    """Whether the rows of a linear layer are whole images whose transpose keeps them separate."""
    weight = dims(op.operands[1].type)
    if order[0] != 0 or not is_static(image.type):
        return False
    if weight[1:-1] != (1,) * (len(weight) - 2):
        return False  # This is a window over the rows, not a layer over each row.
    return dims(op.input.type)[-1] == math.prod(cast("tuple[int, ...]", dims(image.type)[1:]))


def own_weight(op: Layer) -> str | Refusal:
    """Return the key of a layer's weight, if its columns may be permuted."""
    typed = op.operands[1].owner
    key = weight_key(typed.input) if isinstance(typed, StorageCast) else None
    if key is None:
        return Refusal("the weight is computed at run time, so its columns cannot be permuted")
    if not (op.operands[1].has_one_use() and cast(StorageCast, typed).input.has_one_use()):
        return Refusal("the weight is also used elsewhere, with its columns in the original order")
    return key


def absorbs_order(value: SSAValue, order: Sequence[int]) -> bool:
    """Whether the only layer that reads a flattened value accepts its elements in any order."""
    image = value
    while value.has_one_use():
        op = next(iter(value.uses)).operation
        if isinstance(op, Layer):
            is_input = op.operands[0] is value
            return is_input and flattens(op, image, order) and isinstance(own_weight(op), str)
        if not is_view(op):
            return False
        value = op.results[0]
    return False


def is_view(op: Operation | Block) -> bool:
    """Whether an op returns its operand's elements in unchanged order."""
    return isinstance(op, StorageCast) or only_reshapes(op)


def flattened_transpose(value: SSAValue) -> Transpose | None:
    """Return the transpose of which a value is a view, if only that view reads the transpose."""
    while True:
        maker = value.owner
        if not value.has_one_use():
            return None
        if isinstance(maker, Transpose):
            return maker
        if not is_view(maker):
            return None
        value = maker.operands[0]  # pyright: ignore[reportAttributeAccessIssue]


(AbsorbFlatten,) = RULES = read_rules(__doc__, globals())
