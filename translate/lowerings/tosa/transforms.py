"""Lowerings of Fourier transforms to RFFT2D and FFT2D (`+fft`), or to products with matrices.

TOSA's operators support power-of-two sizes along one or two axes. Another size, or a target without
`+fft`, takes a MATMUL with the cosines and sines. TOSA has no complex numbers: a complex value has
its real and imaginary parts on a last axis, as in `view_as_real`. TOSA's operators take both parts
separately.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import torch
from xdsl.dialects.builtin import BoolAttr, IntegerAttr

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.targets import level_of
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import f32, i32
from stepwell.ir.types import tensor
from stepwell.translate.decompositions.complex import COMPLEX, pair, whole
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.values import Value, concat
from stepwell.translate.rewrites.building import axis
from stepwell.translate.rewrites.tosa.operators.building import Builder
from stepwell.translate.rewrites.tosa.operators.sizes import is_known

Parts = Sequence[Value]
"""A real value, or the real and imaginary parts of one shape."""

NORMALIZATIONS = (0.0, -0.5, -1.0)
"""PyTorch's normalization code → the exponent of the transform's size in the factor of the result.
"""

MOST_POINTS = 2048
"""The most points of a transform by a matrix: 32 MB of cosines and sines."""

REAL, WHOLE, BACK = "real", "whole", "back"
"""Real to one-sided complex, complex to complex, and one-sided complex to real."""

TRANSFORMS = {
    "aten._fft_r2c.default": REAL,
    "aten._fft_c2c.default": WHOLE,
    "aten._fft_c2r.default": BACK,
}


@dataclass(frozen=True)
class Turn:
    """A Fourier transform of one or two axes of `points`, by an operator, or of one axis by a
    matrix.
    """

    kind: str
    axes: tuple[int, ...]
    points: tuple[int, ...]
    inverse: bool
    has_operator: bool


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
) -> Value:
    """Lower `_fft_r2c`, `_fft_c2c` and `_fft_c2r` by one or two axes at a time, with scaling."""
    if not {x.dtype, out.dtype} <= {f32, COMPLEX}:
        refuse("TOSA transforms numbers of single precision")
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
    kind = WHOLE if form == REAL and not op.arg("onesided") else form
    inverse = form == BACK or (form == WHOLE and not op.arg("forward"))
    turns = _turns(kind, axes, points, inverse, b.rw.program.context.target)
    parts: Parts = (x,) if x.dtype == f32 else _parts(x)
    for turn in turns:
        parts = _turned(turn, parts)
    scale = float(prod(points)) ** NORMALIZATIONS[normalization]
    if scale != 1:
        parts = [part * scale for part in parts]
    return parts[0] if form == BACK else _paired(parts)


def has_transforms(target: str) -> bool:
    """Whether a target has RFFT2D and FFT2D; outside a lowering this is true."""
    return not target or "fft" in target.split("+")


def is_power(points: int) -> bool:
    """Whether a number is a power of two."""
    return points & (points - 1) == 0


def _turns(
    last: str, axes: Sequence[int], points: Sequence[int], inverse: bool, target: str
) -> list[Turn]:
    """Return the sequence of transforms; the one-sided axis is the last one."""
    most = level_of(target).kernel
    able = [has_transforms(target) and is_power(n) and n <= most for n in points]
    # Real input is transformed from the last axis on; for real output, that axis comes last.
    turns: list[Turn] = []
    at = len(axes)
    while at:
        kind = last if at == len(axes) else WHOLE
        both = at > 1 and kind != BACK and able[at - 2] and able[at - 1]
        first = at - 1 - both
        part = tuple(axes[first:at]), tuple(points[first:at])
        turns.append(Turn(kind, *part, inverse, able[at - 1]))
        at = first
    turns = turns[::-1] if last == BACK else turns
    for turn in turns:
        size = turn.points[0]
        if turn.has_operator or size <= MOST_POINTS:
            continue
        if not has_transforms(target) and is_power(size):
            refuse(f"a transform of {size} points needs the extension fft")
        refuse(
            f"a transform of {size} points: TOSA's operators take powers of two up to {most}, and a matrix is used for at most {MOST_POINTS}"
        )
    return turns


def _turned(turn: Turn, parts: Parts) -> Parts:
    """Move the axes to the end, transform them as images, and move them back."""
    rank, count = parts[0].rank, len(turn.axes)
    order = [at for at in range(rank) if at not in turn.axes] + list(turn.axes)
    moved = [part.permute(order) for part in parts]
    shape = list(moved[0].shape)
    image = (prod(shape[: rank - count]), *([1] * (2 - count)), *shape[rank - count :])
    images = [part.reshape(*image) for part in moved]
    made = _transformed(turn, images) if turn.has_operator else _multiplied(turn, images)
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


def _multiplied(turn: Turn, images: Parts) -> Parts:
    """Transform `[N, 1, K]` by one product of concatenated parts with a matrix."""
    matrix = transform_matrix(turn.kind, turn.points[0], turn.inverse, len(images) == 2)
    n = images[0].shape[0]
    row = images[0] if len(images) == 1 else concat(images, 2)
    row = row.reshape(1, n, len(matrix))
    y = row.matmul(row.tensor(matrix[None]))
    made = 1 if turn.kind == BACK else 2
    width = matrix.shape[1] // made
    return [y.narrow(2, part * width, width).reshape(n, 1, width) for part in range(made)]


@cache
def transform_matrix(kind: str, points: int, inverse: bool, takes_pairs: bool) -> torch.Tensor:
    """Return the matrix `f32[K, M]` that transforms a row of K numbers (real, or both parts).

    Its angles are reduced to one turn before their cosines and sines are computed.
    """
    half = points // 2 + 1
    rows, columns = {REAL: (points, half), WHOLE: (points, points), BACK: (half, points)}[kind]
    turns = torch.outer(torch.arange(rows), torch.arange(columns)) % points
    angle = turns.double() * (2 * math.pi / points)
    cosines, sines = angle.cos(), angle.sin() * (1 if inverse else -1)
    sines[2 * turns % points == 0] = 0  # The imaginary part of a real sum is exactly 0 there.
    if kind == BACK:  # Points except the first and the middle one include their conjugate.
        twice = torch.full((half, 1), 2.0, dtype=torch.float64)
        twice[0] = 1
        if points % 2 == 0:
            twice[-1] = 1
        return torch.cat([twice * cosines, -twice * sines]).float()
    top = torch.cat([cosines, sines], 1)
    if not takes_pairs:
        return top.float()
    return torch.cat([top, torch.cat([-sines, cosines], 1)]).float()


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
