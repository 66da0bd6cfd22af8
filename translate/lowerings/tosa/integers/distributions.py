"""Lowerings of softmax between casts to integer operators: byte look-ups, and one division.

A value minus its row's maximum is one of 256 integers, so that its exponential is looked up, with
one TABLE for each of its two or three bytes. The exponentials are added up in int32, and INTDIV
divides each of them, scaled for the result, by the sum. The error against the real softmax, in
units of the result before it is rounded, is as follows. The exponentials of n elements, of which
the largest is 2^p and each is off by 1/2, move a quotient by n / (2^(p+1) scale); the division
truncates 2^-g. If the total is below one, the integers are at most one unit apart. `fixed_for`
returns the smallest p for which that holds and RESCALE supports every product.

An NPU has no integer division (U55, U65) or a slow one (U85). There, sum and exponentials are
shifted left by the sum's leading zeros, so that the sum S is between 2^30 and 2^31. A TABLE of
bytes gives the reciprocal r of m = S / 2^31 to within 2^-7 of itself: 2^-8 for the sum as a byte,
and as much for the entry. One step of Newton's method, r (2 - m r), squares that error, and one
product is the quotient: off by less than 2^-13 / scale. (A TABLE of 16 bits takes 6 500 cycles on a
U55 for any size, since Vela fetches three tables of 2 KB for it.) The row's maximum is a REDUCE_MAX
of the bytes as stored, since the U55 has none for wider integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepwell.dialects.tosa import generated as t
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import i8
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.integers.functions import looked_up
from stepwell.translate.lowerings.tosa.integers.values import Integers, delivered, rescaled
from stepwell.translate.lowerings.tosa.values import Value
from stepwell.translate.quantized.layers import Layer
from stepwell.translate.quantized.recognize import Use
from stepwell.translate.rewrites.tosa.integers.integers import is_rescaled
from stepwell.translate.rewrites.tosa.operators.building import Builder

SOFTMAX = """
    %a = quant.dcast %x : tensor<2x8x!quant.uniform<i8:f32, 0.1:3>> to tensor<2x8xf32>
    %s = aten._softmax.default(%a, 1, false) : (tensor<2x8xf32>) -> tensor<2x8xf32>
    %y = quant.qcast %s : tensor<2x8xf32> to tensor<2x8x!quant.uniform<i8:f32, 0.00390625:-128>>
"""


@lowers(
    "aten._softmax.default",
    to="tosa",
    quantized_operands=1,
    takes_symbols=False,
    bound=Bound(units=1, reason="exponentials of 16 bits or more, cut quotients"),
    sample=SOFTMAX,
)
def int8_softmax(x: Integers, *, dim: int, layer: Layer, use: Use, b: Builder) -> Value:
    """Lower an int8 softmax to thirteen operators, or sixteen if exponentials have a third byte."""
    axis, count = _row(x, dim)
    bits, guard = _fitting(fixed_for, count, layer, use)
    wide = x.wide()
    below = wide - wide.reduce(t.ReduceMaxOp, axis)
    powers = exponentials(rescaled(below, 1.0, 0, i8, 127), x.held.scale, bits)
    total = powers.sum(axis)
    gain = 2.0**guard
    quotient = rescaled(powers, gain / use.held.scale) // total
    return delivered(quotient, 1.0 / gain, use)


def _row(x: Integers, dim: int) -> tuple[int, int]:
    """Return a softmax's axis and its size, if 256 entries cover the exponentials."""
    if x.held.bits != 8:
        refuse("a TABLE of 16-bit integers interpolates, which is too far off for a softmax")
    axis = dim % max(len(x.shape), 1)
    return axis, x.shape[axis]


def _fitting(fixed: Callable[[int, float], Any], count: int, layer: Layer, use: Use) -> Any:
    """Return the fixed-point parameters for one quantization of the result and rows of `count`;
    refuse if any quantization of the result has none.
    """
    for each in layer.uses:
        if fixed(count, each.held.scale) is None:
            scale = each.held.scale
            refuse(f"a row of {count} elements at scale {scale:g} needs more than 32 bits")
    return fixed(count, use.held.scale)


def fixed_for(count: int, scale: float) -> tuple[int, int] | None:
    """Return the numbers of bits with which a softmax is off by less than one unit of its result.

    The first is for the largest of `count` exponentials, the second for the fraction of a quotient
    below the result's unit (`scale`). Both are the fewest; returns None if no pair suffices.
    """
    for bits in range(16, 24):
        for guard in range(8, 0, -1):
            fits = is_rescaled(2.0**guard / scale, 2.0**bits - 1) and count << bits < 1 << 31
            if fits and count / (2.0 ** (bits + 1) * scale) + 2.0**-guard < 0.99:
                return bits, guard
    return None


def exponentials(below: Value, scale: float, bits: int) -> Value:
    """Return exp((c - 127) scale) in units of 2^-bits, for bytes c, in int32."""
    reals = torch.exp(torch.arange(-255, 1, dtype=torch.float64) * scale)
    rest = torch.round(reals * (2.0**bits - 1)).long()
    total: Value | None = None
    for place in range(0, bits, 8):
        entries = ((rest >> place) % 256 - 128).to(torch.int8)
        part = rescaled(looked_up(below, entries), 2.0**place, -128)
        total = part if total is None else total + part
    assert total is not None
    return total


_ONE = 1 << 29
"""The number 1 in the fixed point of reciprocals."""


@lowers(
    "aten._softmax.default",
    to="tosa",
    quantized_operands=1,
    takes_symbols=False,
    phases=("npu",),
    bound=Bound(units=1, reason="exponentials of 16 bits, reciprocals of 14"),
    sample=SOFTMAX,
)
def softmax_by_table(x: Integers, *, dim: int, layer: Layer, use: Use, b: Builder) -> Value:
    """Lower a softmax for an NPU to some twenty operators, most of them on one number per row."""
    axis, count = _row(x, dim)
    bits = _fitting(bits_for, count, layer, use)
    stored_bytes, zero = x.stored(), x.held.zero_point
    greatest = rescaled(stored_bytes.reduce(t.ReduceMaxOp, axis), 1.0, zero)
    below = rescaled(stored_bytes, 1.0, zero) - greatest
    powers = exponentials(rescaled(below, 1.0, 0, i8, 127), x.held.scale, bits)
    total = powers.sum(axis)
    places = total.unary(t.ClzOp) - 1
    half = total << places
    guess = looked_up(rescaled(half, 2.0**-23, 0, i8, -128), reciprocals())
    first = rescaled(guess, _ONE / 256, -128) + _ONE
    off = _product(half, first)
    inverse = _product(first, 2 * _ONE - off)
    quotient = _product(powers << places, inverse)
    return delivered(quotient, 4 / (_ONE * use.held.scale), use)


def _product(one: Value, other: Value) -> Value:
    """Return a product of int32 in units of 2^31, rounded to nearest."""
    return one.made(t.MulOp, one.shape, other, one.b.number(31, 1, i8))


def bits_for(count: int, scale: float) -> int | None:
    """Return the fewest bits with which a softmax of `count` elements is off by less than a unit,
    or None.
    """
    for bits in (16, 20):  # Two bytes and two tables, or three.
        if count << bits >= 1 << 31:
            return None
        if count / (2.0 ** (bits + 1) * scale) + 2.0**-13 / scale < 0.99:
            return bits
    return None


def reciprocals() -> torch.Tensor:
    """Return 256 (1 / m - 1) - 128 for the bytes 256 m - 128 with m from 1/2 to 1; as for 1/2
    below.
    """
    numbers = torch.arange(0, 256, dtype=torch.float64).clamp(min=128) / 256
    return (torch.round(256 / numbers) - 384).clamp(max=127).to(torch.int8)


RULES = lowerings_of(__name__)
