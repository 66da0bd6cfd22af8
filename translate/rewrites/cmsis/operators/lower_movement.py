"""Permutations and pads of quantised values become `cmsis.transpose` and `cmsis.pad`.

Before:
    %a = quant.dcast %x : tensor<2x3x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x3xf32>
    %p = aten.constant_pad_nd.default(%a, [0, 1]) : (tensor<2x3xf32>) -> tensor<2x4xf32>
    %q = quant.qcast %p : tensor<2x4xf32> to tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>
    %r = quant.scast %q : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x4xi8>
    %t = aten.t.default(%r) : (tensor<2x4xi8>) -> tensor<4x2xi8>
    %s = quant.scast %t : tensor<4x2xi8> to tensor<4x2x!quant.uniform<i8:f32, 0.5:3>>
After:
    %q = cmsis.pad(%x) {pre_pad = array<i64: 0, 0, 0, 0>, post_pad = array<i64: 0, 0, 0, 1>,
        pad_value = 3 : i64} : (tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>)
        -> tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>
    %r = quant.scast %q : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x4xi8>
    %v0 = quant.scast %r : tensor<2x4xi8> to tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>
    %v1 = cmsis.transpose(%v0) {perm = array<i64: 1, 0>}
        : (tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>)
        -> tensor<4x2x!quant.uniform<i8:f32, 0.5:3>>
    %t = quant.scast %v1 : tensor<4x2x!quant.uniform<i8:f32, 0.5:3>> to tensor<4x2xi8>
    %s = quant.scast %t : tensor<4x2xi8> to tensor<4x2x!quant.uniform<i8:f32, 0.5:3>>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import ClassVar, cast

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.quant import StorageCast, UniformQuantizedType
from stepwell.ir.families import ops_of
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, is_static, with_element
from stepwell.translate.quantised.recognise import (
    Activation,
    Use,
    activation,
    deliver,
    distinct,
    narrowed,
    not_int8,
    quantized_uses,
)
from stepwell.translate.rewrites.cmsis.operators.rescale import rescaled
from stepwell.translate.rewrites.cmsis.placing.reshape import padded, transposed
from stepwell.translate.rewrites.quant.movement import moved, only_moves, permutation

PERMUTATIONS = tuple(map(op_class, ops_of("permutation", "aten")))
PAD = op_class("aten.constant_pad_nd.default")
PADS = (PAD, op_class("aten.pad.default"))


@dataclass(frozen=True)
class Permute:
    """A permutation of stored integers, and the type whose storage they are."""

    op: SchemaOp
    held: UniformQuantizedType
    order: tuple[int, ...]


@dataclass(frozen=True)
class LowerPermute(Rewrite[Permute]):
    """permute(raw) → raw(cmsis.transpose(typed))."""

    name: ClassVar[str] = "lower-permute"
    anchors: ClassVar[tuple[type[Operation], ...]] = PERMUTATIONS

    def match(self, op: SchemaOp, program: Program) -> Permute | Refusal | None:
        """Rank at most 4, int8, and known what it is the storage of."""
        held = stored_type(op.operands[0])
        if held is None or not_int8(held.data):
            return None
        order = permutation(op)
        if order is None:
            return None
        if len(order) > 4:
            return Refusal(f"it permutes {len(order)} dimensions; the kernel takes 4 at most")
        return Permute(op, held, order)

    def build(self, match: Permute, rw: Rewriter) -> None:
        """One transpose; none for a permutation that is the identity."""
        source = match.op.operands[0]
        if list(match.order) == sorted(match.order):
            rw.replace(match.op, [source])
            return
        rw.replace(match.op, [permuted(rw, source, match.held, match.order)])


def permuted(
    rw: Rewriter, raw: SSAValue, held: UniformQuantizedType, order: Sequence[int]
) -> SSAValue:
    """Stored integers under permuted dimensions: those of their quantised value, transposed."""
    typed = rw.insert(StorageCast(raw, with_element(raw.type, held))).results[0]
    made = transposed(rw, typed, order)
    return rw.insert(StorageCast(made, with_element(made.type, element(raw.type)))).results[0]


def stored_type(value: SSAValue) -> UniformQuantizedType | None:
    """The type whose stored integers a plain value holds, found through what only moves them."""
    maker = value.owner
    if isinstance(maker, StorageCast):
        held = element(maker.input.type)
        return held if isinstance(held, UniformQuantizedType) else None
    if not (isinstance(maker, SchemaOp) and only_moves(maker)):
        return None
    found = (stored_type(source) for _, source in moved(maker))  # A constant does not say it.
    return next((held for held in found if held is not None), None)


@dataclass(frozen=True)
class Padding:
    """A constant pad of a quantised value."""

    op: SchemaOp
    input: Activation
    before: tuple[int, ...]
    after: tuple[int, ...]
    value: float
    uses: tuple[Use, ...]


@dataclass(frozen=True)
class LowerPad(Rewrite[Padding]):
    """q(pad(dq(x), v)) → cmsis.pad(x, q(v))."""

    name: ClassVar[str] = "lower-pad"
    anchors: ClassVar[tuple[type[Operation], ...]] = PADS

    def match(self, op: SchemaOp, program: Program) -> Padding | Refusal | None:
        """Constant mode, no cropping, rank at most 4; the value must be one that is stored."""
        if op.name == "aten.pad.default" and op.arg("mode") != "constant":
            return Refusal(f"its mode is {op.arg('mode')}; the kernel pads with a constant")
        shape = dims(op.operands[0].type)
        widths = cast("list[int]", op.arg("pad"))
        if len(shape) > 4 or not is_static(op.results[0].type):
            return Refusal(f"its input is {op.operands[0].type}; the kernel takes rank 4 at most")
        if any(width < 0 for width in widths):
            return Refusal("it crops; the kernel does not")
        x = activation(op.operands[0])
        if isinstance(x, Refusal):
            return x
        uses = quantized_uses(op.results[0])
        if isinstance(uses, Refusal):
            return uses
        value = float(op.arg("value") or 0)
        if isnan(value):
            return Refusal("it pads with NaN, which no scale holds")
        stored = narrowed(x.held, [(value, value)])[0]
        if (stored - x.held.zero_point) * x.held.scale != value:
            exact = all(use.held == x.held for use in uses)
            if not exact:
                return Refusal(f"it pads with {value:g}, which its input's scale does not hold")
        missing = len(shape) - len(widths) // 2
        before = (*([0] * missing), *reversed(widths[0::2]))
        after = (*([0] * missing), *reversed(widths[1::2]))
        return Padding(op, x, before, after, value, uses)

    def build(self, match: Padding, rw: Rewriter) -> None:
        """Pad the stored integers, then a table if another quantisation is wanted."""
        value = match.input.value
        if any((*match.before, *match.after)):
            cell = narrowed(match.input.held, [(match.value, match.value)])[0]
            value = padded(rw, value, match.before, match.after, cell)
        for use, group in distinct(match.uses):
            deliver(rw, group, rescaled(rw, value, use))
