"""Lower elementwise ops, and softmax along an axis, each to one node.

rule lower-unary
    A function of one tensor.
Before:
    %y = aten.$op.default(%x)
After:
    %y = xnnpack.$node(%x)
unless stays_outside(%y)
loses FLUSHED
bound of roundings: "XNNPACK approximates exp, tanh, erf, log, sin"
for each $op, $node of (abs, abs), (ceil, ceiling), (cos, cosine), (exp, exp), (floor, floor),
    (hardswish, hardswish), (log, log), (neg, negate), (rsqrt, reciprocal_square_root),
    (sigmoid, sigmoid), (sin, sine), (sqrt, square_root), (tanh, tanh)

rule lower-gelu
    XNNPACK's gelu is the erf form.
Before:
    %y = aten.gelu.default(%x, approximate=$a)
After:
    %y = xnnpack.gelu(%x)
unless stays_outside(%y) for target
where is_exact($a) else "XNNPACK's gelu is the exact one, not the tanh form"
loses FLUSHED
bound of roundings: "XNNPACK approximates erf"
for $a = "none"
not for %x = "tensor<30xf32>", $a = "tanh"

rule lower-elu
    An elu as ELU's authors have it, with a positive alpha.
Before:
    %y = aten.elu.default(%x, $alpha, $scale, $inner)
After:
    %y = xnnpack.elu(%x, alpha=$a)
unless stays_outside(%y) for target
where is_one($scale) else "XNNPACK's elu scales neither input nor output"
where is_one($inner) else "XNNPACK's elu scales neither input nor output"
with $a = positive($alpha)
loses FLUSHED
bound of roundings: "XNNPACK approximates exp"
for $alpha = 0.5, $scale = 1, $inner = 1

rule lower-leaky-relu
    One slope for all numbers below zero.
Before:
    %y = aten.leaky_relu.default(%x, $slope)
After:
    %y = xnnpack.leaky_relu(%x, negative_slope=$s)
unless stays_outside(%y) for target
with $s = fitting($slope)
loses FLUSHED
bound of roundings: "the slope is rounded to float32"
for $slope = 0.01

rule lower-prelu
    One slope, or one for each place on the last axis.
Before:
    %y = aten.$prelu.default(%x, %w)
After:
    %y = xnnpack.prelu(%x, %w)
unless stays_outside(%y) for target
unless slopes_stand_elsewhere(%x, %w)
loses FLUSHED
bound of roundings: "a zero keeps its sign or takes that of the slope"
for each $prelu of prelu, _prelu_kernel
for %w = "tensor<3xf32>"

rule lower-sum
    Sums and differences of tensors that broadcast; the second has no factor.
Before:
    %y = aten.$op.Tensor(%x, %z, alpha=$a) : (…) -> $T
After:
    %y = xnnpack.$node(%x, %z)
unless stays_outside(%y)
where is_one($a) else "alpha is {a}, not 1"
unless do_not_broadcast(%x, %z) for target
loses FLUSHED
for each $op, $node of (add, add), (sub, subtract)
for $a = 1
not for %x = 'tensor<?x3xf32, #stepwell.shape<["a", 3]>>',
    %z = 'tensor<?x3xf32, #stepwell.shape<["b", 3]>>', $T = 'tensor<?x3xf32, #stepwell.shape<["a", 3]>>'

rule lower-square
    A tensor times itself.
Before:
    %y = aten.mul.Tensor(%x, %x)
After:
    %y = xnnpack.square(%x)
unless stays_outside(%y)
loses FLUSHED

rule lower-product
    Tensors that broadcast.
Before:
    %y = aten.mul.Tensor(%x, %z) : (…) -> $T
After:
    %y = xnnpack.multiply(%x, %z)
where are_two(%x, %z) for cost
unless stays_outside(%y)
unless do_not_broadcast(%x, %z) for target
loses FLUSHED
not for %x = 'tensor<?x3xf32, #stepwell.shape<["a", 3]>>',
    %z = 'tensor<?x3xf32, #stepwell.shape<["b", 3]>>', $T = 'tensor<?x3xf32, #stepwell.shape<["a", 3]>>'
not for %z = %x

rule lower-binary
    Other functions of two tensors that broadcast.
Before:
    %y = aten.$op(%x, %z) : (…) -> $T
After:
    %y = xnnpack.$node(%x, %z)
unless stays_outside(%y)
unless do_not_broadcast(%x, %z) for target
loses FLUSHED
bound of roundings: "XNNPACK may divide by an estimated reciprocal"
for each $op, $node of (div.Tensor, divide), (maximum.default, maximum), (minimum.default, minimum)
not for %x = 'tensor<?x3xf32, #stepwell.shape<["a", 3]>>',
    %z = 'tensor<?x3xf32, #stepwell.shape<["b", 3]>>', $T = 'tensor<?x3xf32, #stepwell.shape<["a", 3]>>'

rule lower-float-cast
    Casts between single and half precision; exact one way, rounded once the other.
Before:
    %y = aten.$cast(%x, dtype=$d, …) : (tensor<$*S x $E>) -> tensor<$*S x $F>
After:
    %y = xnnpack.convert(%x) : … -> tensor<$*S x $F>
where are_single_and_half($E, $F)
unless is_a_constant(%x) for target
unless asks_for_another_layout(%y) for target
unless is_not_held(%x) for target
loses FLUSHED
for each $cast of _to_copy.default, to.dtype
for $E = f16, $F = f32, $d = f32
not for $memory_format = "torch.channels_last", $S = [2, 3, 4, 5]
not for $S = [1, 1, 1, 1, 1, 2, 3]

rule lower-softmax
    The axis is brought last, and back.
Before:
    %y = aten.$softmax(%x, $d, …)
After:
    %l = permute(%x, $o)
    %s = xnnpack.softmax(%l)
    %y = permute(%s, inverse($o))
unless is_not_for_xnnpack(%y) for target
with $o = axis_last(%x, $d)
loses FLUSHED
bound of roundings: "XNNPACK approximates exp"
for each $softmax of _softmax.default, softmax.int
for $d = 0, $half_to_float = false
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack.shapes import broadcast
from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.declared import numerics
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import f16, f32
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import dims
from stepwell.translate.canonicalize.copies import changes_layout
from stepwell.translate.rewrites import building
from stepwell.translate.rewrites.building import axis, overflows
from stepwell.translate.rewrites.xnnpack.nodes import lower_clamp
from stepwell.translate.rewrites.xnnpack.nodes.guards import (
    may_be_empty,
    not_for_xnnpack,
    not_held,
    stands_among_integers,
)
from stepwell.translate.rules import read_rules


def stays_outside(value: SSAValue) -> Refusal | None:
    """Refuse an unsupported type, constant operands only, or integer neighbors."""
    op = cast(SchemaOp, value.owner)
    if refusal := not_for_xnnpack(op):
        return refusal
    if all(isinstance(operand.owner, WeightOp) for operand in op.operands):
        return Refusal("all operands are constants; XNNPACK needs one that is computed")
    if stands_among_integers(op):
        return Refusal(
            "the floats are computed from integers and read by integer ops, outside delegates"
        )
    return None


def do_not_broadcast(one: SSAValue, other: SSAValue) -> Refusal | None:
    """Refuse operands whose dynamic sizes are not provably equal or 1."""
    try:
        broadcast(dims(one.type), dims(other.type))
    except StepwellError as error:
        return Refusal(str(error).splitlines()[0])
    return None


def are_two(one: SSAValue, other: SSAValue) -> bool:
    """Whether the two values are different."""
    return one is not other


def is_exact(form: str) -> bool:
    """Whether a gelu uses erf (not the tanh approximation)."""
    return form == "none"


def fitting(number: float) -> float | Refusal:
    """Return a number rounded to float32."""
    return overflows(float(number), f32) or float(number)


def positive(alpha: float) -> float | Refusal:
    """Return alpha, or a refusal if it is not positive."""
    if not alpha > 0:
        return Refusal(f"alpha is {float(alpha)}; XNNPACK's is positive")
    return fitting(alpha)


def slopes_stand_elsewhere(value: SSAValue, weight: SSAValue) -> Refusal | None:
    """Refuse PReLU slopes on no axis, or on an axis that is not the last."""
    shape, slopes = dims(value.type), dims(weight.type)
    if not shape and slopes:
        return Refusal("a single number has no axis for slopes")
    if slopes not in ((), (1,)) and (len(shape) > 2 or slopes != shape[-1:]):
        return Refusal("the slopes are on an axis that is not the last")
    return None


def are_single_and_half(one: Attribute, other: Attribute) -> bool:
    """Whether the types are f32 and f16, in either order."""
    return (one, other) in ((f16, f32), (f32, f16))


def is_a_constant(value: SSAValue) -> Refusal | None:
    """Refuse a weight as operand, because it is cast at compile time."""
    if weight_key(value) is None:
        return None
    return Refusal("the operand is a constant; XNNPACK needs one that is computed")


def asks_for_another_layout(value: SSAValue) -> Refusal | None:
    """Refuse a cast that also changes the memory format."""
    return changes_layout(cast(SchemaOp, value.owner))


def axis_last(value: SSAValue, number: int) -> list[int] | Refusal:
    """Return the axis order that moves one axis to the end."""
    rank = len(dims(value.type))
    if rank == 0:
        return Refusal("the operand is a scalar, which has no axis")
    at = axis(number, rank)
    if refusal := may_be_empty(value, [dims(value.type)[at]]):
        return refusal
    return [*(i for i in range(rank) if i != at), at]


def inverse(order: Sequence[int]) -> list[int]:
    """Return the inverse of an axis order."""
    return [order.index(i) for i in range(len(order))]


is_not_held = not_held

RULES = read_rules(__doc__, vars(numerics) | vars(building) | vars(lower_clamp) | globals())
