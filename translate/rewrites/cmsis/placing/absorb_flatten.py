"""Flattens a layer's image in the order in which it lies, with the weight's columns in that order.

`flatten` after a convolution reads NCHW, so the NHWC result would be transposed first. A linear
layer's sums do not care in which order their terms stand: the columns of the constant weight are
permuted ahead of time instead, and the flattening is a view.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<1x12xi8>
    %wt = quant.scast %w : tensor<1x12xi8> to tensor<1x12x!quant.uniform<i8:f32, 0.25>>
    %t = cmsis.transpose(%x) {perm = array<i64: 0, 3, 1, 2>}
        : (tensor<2x2x2x3x!quant.uniform<i8:f32, 0.5:3>>)
        -> tensor<2x3x2x2x!quant.uniform<i8:f32, 0.5:3>>
    %r = quant.scast %t : tensor<2x3x2x2x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x3x2x2xi8>
    %v = aten.view.default(%r, [2, 12]) : (tensor<2x3x2x2xi8>) -> tensor<2x12xi8>
    %f = quant.scast %v : tensor<2x12xi8> to tensor<2x12x!quant.uniform<i8:f32, 0.5:3>>
    %y = cmsis.quantized_linear(%f, %wt) {input_offset = -3 : i64, filter_offset = 0 : i64,
        output_offset = -1 : i64, requantize_multipliers = array<i64: 1073741824>,
        requantize_shifts = array<i64: -3>, activation_max = 127 : i64,
        activation_min = -128 : i64}
        : (tensor<2x12x!quant.uniform<i8:f32, 0.5:3>>,
           tensor<1x12x!quant.uniform<i8:f32, 0.25>>)
        -> tensor<2x1x!quant.uniform<i8:f32, 2.0:-1>>
After:
    %w = stepwell.weight <"w#cmsis.reshape"> "constant" : tensor<1x12xi8>
    %r = quant.scast %x : tensor<2x2x2x3x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x2x2x3xi8>
    %v = aten.view.default(%r, [2, 12]) : (tensor<2x2x2x3xi8>) -> tensor<2x12xi8>
    %f = quant.scast %v : tensor<2x12xi8> to tensor<2x12x!quant.uniform<i8:f32, 0.5:3>>
    %wt = quant.scast %w : tensor<1x12xi8> to tensor<1x12x!quant.uniform<i8:f32, 0.25>>
    %y = cmsis.quantized_linear(%f, %wt) {input_offset = -3 : i64, filter_offset = 0 : i64,
        output_offset = -1 : i64, requantize_multipliers = array<i64: 1073741824>,
        requantize_shifts = array<i64: -3>, activation_max = 127 : i64,
        activation_min = -128 : i64}
        : (tensor<2x12x!quant.uniform<i8:f32, 0.5:3>>,
           tensor<1x12x!quant.uniform<i8:f32, 0.25>>)
        -> tensor<2x1x!quant.uniform<i8:f32, 2.0:-1>>
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects.aten.reshapes import only_reshapes
from stepwell.dialects.cmsis.ops import QuantizedConv2dNhwc, QuantizedLinear, Transpose
from stepwell.dialects.quant import StorageCast
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriter import remade
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, is_static
from stepwell.translate.quantised.recognise import typed_weight
from stepwell.translate.rewrites.cmsis.placing.reshape import reshaped

Layer = QuantizedLinear | QuantizedConv2dNhwc


@dataclass(frozen=True)
class Flatten:
    """A layer over rows, the transposition before their flattening, and the weight's key."""

    op: Layer
    transpose: Transpose
    weight: str


@dataclass(frozen=True)
class AbsorbFlatten(Rewrite[Flatten]):
    """linear(flatten(transpose(x)), w) → linear(flatten(x), permuted w)."""

    name: ClassVar[str] = "absorb-flatten"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizedLinear, QuantizedConv2dNhwc)

    def match(self, op: Layer, program: Program) -> Flatten | Refusal | None:
        """Rows are whole images, the weight a constant of this layer alone, and nothing else
        reads the transposed value.
        """
        transpose = flattened_transpose(op.input)
        if transpose is None or not flattens(op, transpose.out, transpose.numbers("perm")):
            return None
        key = own_weight(op)
        return key if isinstance(key, Refusal) else Flatten(op, transpose, key)

    def build(self, match: Flatten, rw: Rewriter) -> None:
        """The layer over the untransposed image, its columns derived."""
        op, order = match.op, match.transpose.numbers("perm")
        weight = op.operands[1]
        shape = dims(weight.type)
        image = dims(match.transpose.out.type)[1:]
        back = [order.index(axis) for axis in range(len(order))]
        derive = rw.weights.derive
        key = derive("cmsis.reshape", [match.weight], shape=[shape[0], *image])
        key = derive("cmsis.permute", [key], permutation=back)
        key = derive("cmsis.reshape", [key], shape=list(shape))
        rows = reshaped(rw, match.transpose.input, dims(op.input.type))
        columns = typed_weight(rw, key, weight.type)  # pyright: ignore[reportArgumentType]
        made = remade(op, [rows, columns, *op.operands[2:]], [op.output.type])
        rw.replace(op, rw.insert(made).results)


def flattens(op: Layer, image: SSAValue, order: Sequence[int]) -> bool:
    """Whether a layer's rows are whole images, transposed in an order that keeps them apart."""
    weight = dims(op.operands[1].type)
    if order[0] != 0 or not is_static(image.type):
        return False
    if weight[1:-1] != (1,) * (len(weight) - 2):
        return False  # A window over the rows, not a layer over each.
    return dims(op.input.type)[-1] == math.prod(cast("tuple[int, ...]", dims(image.type)[1:]))


def own_weight(op: Layer) -> str | Refusal:
    """The key of a layer's weight, if its columns may be put into another order."""
    typed = op.operands[1].owner
    key = weight_key(typed.input) if isinstance(typed, StorageCast) else None
    if key is None:
        return Refusal("its weight is computed at run time, and keeps its columns")
    if not (op.operands[1].has_one_use() and cast(StorageCast, typed).input.has_one_use()):
        return Refusal("its weight is used elsewhere too, with its columns as they are")
    return key


def absorbs_order(value: SSAValue, order: Sequence[int]) -> bool:
    """Whether the one layer that reads a value, flattened, takes it in any order."""
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
    """Whether an op gives the elements it reads, in their order."""
    return isinstance(op, StorageCast) or only_reshapes(op)


def flattened_transpose(value: SSAValue) -> Transpose | None:
    """The transposition whose result a value is a view of, if it is read through that view alone."""
    while True:
        maker = value.owner
        if not value.has_one_use():
            return None
        if isinstance(maker, Transpose):
            return maker
        if not is_view(maker):
            return None
        value = maker.operands[0]  # pyright: ignore[reportAttributeAccessIssue]
