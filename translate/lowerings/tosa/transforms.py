"""Lowerings of Fourier transforms to RFFT2D and FFT2D (`+fft`).

TOSA's operators support power-of-two sizes along one or two axes; others are products by now
(`decompositions/fourier.py`). TOSA has no complex numbers: a complex value has its real and
imaginary parts on a last axis, as in `view_as_real`. TOSA's operators take both parts separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from xdsl.dialects.builtin import BoolAttr, IntegerAttr

from stepwell.dialects.tosa import generated as t
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import f32, i32
from stepwell.ir.types import tensor
from stepwell.translate.decompositions.complex import COMPLEX, pair, whole
from stepwell.translate.decompositions.fourier import (
    BACK,
    NORMALIZATIONS,
    REAL,
    TRANSFORMS,
    WHOLE,
    is_operator,
)
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.values import Value, concat
from stepwell.translate.rewrites.building import axis
from stepwell.translate.rewrites.tosa.operators.building import Builder
from stepwell.translate.rewrites.tosa.operators.sizes import is_known

Parts = Sequence[Value]
"""A real value, or the real and imaginary parts of one shape."""


@dataclass(frozen=True)
class Turn:
    """A Fourier transform of one or two axes of `points` by an operator."""

    kind: str
    axes: tuple[int, ...]
    points: tuple[int, ...]
    inverse: bool


@lowers(
    TRANSFORMS,
    to="tosa",
    check="none",
    bound=roundings("sums of products in another order"),
    sample="""
    %c = aten._fft_r2c.default(%x, [1], 0, true) : (tensor<3x8xf32>) -> tensor<3x5xcomplex<f32>>
    %y = aten.view_as_real.default(%c) : (tensor<3x5xcomplex<f32>>) -> tensor<3x5x2xf32>
    """,
)
def transform(
    x: Value, dim: Sequence[int], normalization: Any, *, form: str, op: Any, out: Out, b: Builder
) -> Value | None:
    """Lower `_fft_r2c`, `_fft_c2c` and `_fft_c2r` by one or two axes at a time, with scaling."""
    if not {x.dtype, out.dtype} <= {f32, COMPLEX}:
        refuse("only numbers of single precision are transformed")
    if not is_known((*x.shape, *out.shape)):
        refuse("the shape is symbolic")
    axes = tuple(axis(number, x.rank) for number in dim)
    if normalization not in range(3):
        refuse("the normalization is not one of PyTorch's")
    if not axes or 0 in x.shape:
        refuse("no axis is transformed, or the tensor is empty, which TOSA does not support")
    points = [x.shape[at] for at in axes]
    if form == BACK:
        points[-1] = op.arg("last_dim_size")
    target = b.rw.program.context.target or "tosa-1.0+fp+fft"
    if not all(is_operator(n, target) for n in points):
        return None  # A product.
    kind = WHOLE if form == REAL and not op.arg("onesided") else form
    inverse = form == BACK or (form == WHOLE and not op.arg("forward"))
    parts: Parts = (x,) if x.dtype == f32 else _parts(x)
    for turn in _turns(kind, axes, points, inverse):
        parts = _turned(turn, parts)
    scale = float(prod(points)) ** NORMALIZATIONS[normalization]
    if scale != 1:
        parts = [part * scale for part in parts]
    return parts[0] if form == BACK else _paired(parts)


def _turns(last: str, axes: Sequence[int], points: Sequence[int], inverse: bool) -> list[Turn]:
    """Return the sequence of transforms; the one-sided axis is the last one."""
    # Real input is transformed from the last axis on; for real output, that axis comes last.
    turns: list[Turn] = []
    at = len(axes)
    while at:
        kind = last if at == len(axes) else WHOLE
        first = at - 1 - (at > 1 and kind != BACK)
        turns.append(Turn(kind, tuple(axes[first:at]), tuple(points[first:at]), inverse))
        at = first
    return turns[::-1] if last == BACK else turns


def _turned(turn: Turn, parts: Parts) -> Parts:
    """Move the axes to the end, transform them as images, and move them back."""
    rank, count = parts[0].rank, len(turn.axes)
    order = [at for at in range(rank) if at not in turn.axes] + list(turn.axes)
    moved = [part.permute(order) for part in parts]
    shape = list(moved[0].shape)
    image = (prod(shape[: rank - count]), *([1] * (2 - count)), *shape[rank - count :])
    made = _transformed(turn, [part.reshape(*image) for part in moved])
    shape[rank - count :] = made[0].shape[3 - count :]
    back = [order.index(at) for at in range(rank)]
    return [part.reshape(*shape).permute(back) for part in made]


def _transformed(turn: Turn, images: Parts) -> Parts:
    """Transform `[N, H, W]` by one operator, and return the requested parts."""
    if turn.kind == BACK:
        return _fourier(_all_points(images, turn.points[0]), True)[:1]
    b = images[0].b
    if turn.kind == REAL:
        *outer, last = images[0].shape
        half = tensor((*outer, last // 2 + 1), f32)
        op = t.RFFT2dOp.create(operands=[images[0].ssa], result_types=[half, half])
        return [Value(part, b) for part in b.rw.insert(op).results]
    if len(images) == 1:
        images = (images[0], images[0].tensor(torch.zeros(*images[0].shape)))
    return _fourier(images, turn.inverse)


def _fourier(parts: Parts, inverse: bool) -> Parts:
    b, operands = parts[0].b, [part.ssa for part in parts]
    properties = {"inverse": BoolAttr.from_bool(inverse)}
    types = [value.type for value in operands]
    op = t.FFT2dOp.create(operands=operands, result_types=types, properties=properties)
    return [Value(part, b) for part in b.rw.insert(op).results]


def _all_points(parts: Parts, size: int) -> Parts:
    """Return all points of a transform whose result is real: the missing ones are conjugates.

    The imaginary parts of the first and the middle point contribute only to an imaginary result.
    """
    count = size - size // 2 - 1
    if not count:
        return parts
    values: list[Value] = []
    for part, is_imaginary in zip(parts, (False, True), strict=True):
        inner = part.narrow(2, 1, count)
        back = inner.made(t.ReverseOp, inner.shape, axis=IntegerAttr(2, i32))
        values.append(concat([part, back * -1.0 if is_imaginary else back], 2))
    return values


def _parts(x: Value) -> Parts:
    """Return the real and imaginary parts of a complex value."""
    both = Value(pair(x.ssa, x.b.rw), x.b)
    return [both.narrow(x.rank, place, 1).reshape(*x.shape) for place in range(2)]


def _paired(parts: Parts) -> Value:
    """Return the complex value with these parts on its last axis."""
    shape, b = parts[0].shape, parts[0].b
    both = concat([part.reshape(*shape, 1) for part in parts], len(shape))
    return Value(whole(both.ssa, b.rw), b)


RULES = lowerings_of(__name__)
