"""Fourier transforms to RFFT2D and FFT2D, which `+fft` has, or to products with matrices.

TOSA's operators take powers of two along one or two axes; another number of points, or a target
without `+fft`, takes a MATMUL with the cosines and sines. TOSA has no complex numbers: a complex
value is a pair of real ones on an axis of its own behind the others, as `view_as_real` gives it, and
TOSA's operators take both parts apart.

Before:
    %c = aten._fft_r2c.default(%x, [1], 0, true) : (tensor<3x8xf32>) -> tensor<3x5xcomplex<f32>>
    %y = aten.view_as_real.default(%c) : (tensor<3x5xcomplex<f32>>) -> tensor<3x5x2xf32>
After:
    %0 = tosa.const_shape {values = dense<[3, 1, 8]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %1 = tosa.reshape %x, %0 : (tensor<3x8xf32>, !tosa.shape<3>) -> tensor<3x1x8xf32>
    %2, %3 = tosa.rfft2d %1 : (tensor<3x1x8xf32>) -> (tensor<3x1x5xf32>, tensor<3x1x5xf32>)
    %4 = tosa.const_shape {values = dense<[3, 5]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %5 = tosa.reshape %2, %4 : (tensor<3x1x5xf32>, !tosa.shape<2>) -> tensor<3x5xf32>
    %6 = tosa.const_shape {values = dense<[3, 5]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %7 = tosa.reshape %3, %6 : (tensor<3x1x5xf32>, !tosa.shape<2>) -> tensor<3x5xf32>
    %8 = tosa.const_shape {values = dense<[3, 5, 1]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %9 = tosa.reshape %5, %8 : (tensor<3x5xf32>, !tosa.shape<3>) -> tensor<3x5x1xf32>
    %10 = tosa.const_shape {values = dense<[3, 5, 1]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %11 = tosa.reshape %7, %10 : (tensor<3x5xf32>, !tosa.shape<3>) -> tensor<3x5x1xf32>
    %12 = tosa.concat %9, %11 {axis = 2 : i32} : (tensor<3x5x1xf32>, tensor<3x5x1xf32>) -> tensor<3x5x2xf32>
    %c = aten.view_as_complex.default(%12) : (tensor<3x5x2xf32>) -> tensor<3x5xcomplex<f32>>
    %y = aten.view_as_real.default(%c) : (tensor<3x5xcomplex<f32>>) -> tensor<3x5x2xf32>
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import ClassVar

import torch
from xdsl.dialects.builtin import BoolAttr, IntegerAttr
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.targets import level_of
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import f32, i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.building import axis, static_dims
from stepwell.translate.rewrites.tosa.operators.building import Builder, narrow, shape_of
from stepwell.translate.rewrites.tosa.operators.lowering import Lowerable, LowerToTosa
from stepwell.translate.rewrites.transforms.complex_to_pairs import COMPLEX, pair, whole

FFT_C2C = op_class("aten._fft_c2c.default")

Parts = Sequence[SSAValue]
"""A real value, or real and imaginary parts of one shape."""

NORMALISATIONS = (0.0, -0.5, -1.0)
"""By PyTorch's numbers: the power of the transform's size that its result is multiplied by."""

MOST_POINTS = 2048
"""The most points that a matrix is made for: 32 MB of cosines and sines."""

REAL, WHOLE, BACK = "real", "whole", "back"
"""From real numbers to half of the points; to all points; from half of the points to real ones."""


@dataclass(frozen=True)
class Turn:
    """One or two axes of `points` to be transformed, in one operator, or one axis by a matrix."""

    kind: str
    axes: tuple[int, ...]
    points: tuple[int, ...]
    inverse: bool
    has_operator: bool


@dataclass(frozen=True)
class LowerTransform(LowerToTosa):
    """`_fft_r2c`, `_fft_c2c` and `_fft_c2r` over the parts of complex numbers."""

    name: ClassVar[str] = "lower-transform-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten._FftR2cDefault,
        FFT_C2C,
        aten._FftC2rDefault,
    )
    takes_symbols: ClassVar[bool] = False
    bound: ClassVar[Bound] = roundings("sums of products in another order")

    def match(self, op: SchemaOp, program: Program) -> Lowerable | Refusal | None:
        """Guards: axes of known sizes in single precision, not too many points for a matrix."""
        x, y = op.operands[0], op.results[0]
        if not {element(x.type), element(y.type)} <= {f32, COMPLEX}:
            return Refusal("TOSA transforms numbers of single precision")
        held, made = static_dims(x), static_dims(y)
        if held is None or made is None:
            return Refusal("the shape is symbolic")
        turned = _axes(op)
        if len(set(turned)) < len(turned) or op.arg("normalization") not in range(3):
            return Refusal("an axis is named twice, or the normalisation is none of PyTorch's")
        if not turned or 0 in held:
            return Refusal(
                "no axis is transformed, or there are no elements: TOSA has no empty tensors"
            )
        target = program.context.target
        for turn in _turns(op, target):
            points = turn.points[0]
            if turn.has_operator or points <= MOST_POINTS:
                continue
            if not has_transforms(target) and is_power(points):
                return Refusal(f"a transform of {points} points needs the extension fft")
            most = level_of(target).kernel
            return Refusal(
                f"a transform of {points} points: TOSA's are of powers of two up to {most}, "
                f"and a matrix is made for {MOST_POINTS} at most"
            )
        return Lowerable(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """Axis by axis, or two at once, and scaled."""
        x = op.operands[0]
        parts: Parts = (x,) if element(x.type) == f32 else _parts(x, b)
        for turn in _turns(op, b.rw.program.context.target):
            parts = _turned(turn, parts, b)
        scale = float(prod(_points(op))) ** NORMALISATIONS[op.arg("normalization")]
        if scale != 1:
            parts = [b.scalar(t.MulOp, part, scale) for part in parts]
        return parts[0] if isinstance(op, aten._FftC2rDefault) else _paired(parts, b)


def has_transforms(target: str) -> bool:
    """Whether a target has RFFT2D and FFT2D; outside a lowering nothing is amiss."""
    return not target or "fft" in target.split("+")


def is_power(points: int) -> bool:
    """Whether a number is a power of two."""
    return points & (points - 1) == 0


def _axes(op: SchemaOp) -> tuple[int, ...]:
    """In the order of the argument: the last one is the one of which half is held."""
    rank = len(dims(op.operands[0].type))
    return tuple(axis(number, rank) for number in op.arg("dim"))


def _points(op: SchemaOp) -> tuple[int, ...]:
    """How many points are transformed, axis by axis."""
    shape = static_dims(op.operands[0])
    assert shape is not None
    sizes = [shape[at] for at in _axes(op)]
    if isinstance(op, aten._FftC2rDefault):
        sizes[-1] = op.arg("last_dim_size")
    return tuple(sizes)


def _turns(op: SchemaOp, target: str) -> list[Turn]:
    """What is done one after the other; the half that real numbers leave out is that of the last axis."""
    turned, points = _axes(op), _points(op)
    most = level_of(target).kernel
    able = [has_transforms(target) and is_power(n) and n <= most for n in points]
    back = isinstance(op, aten._FftC2rDefault)
    inverse = back or (isinstance(op, FFT_C2C) and not op.arg("forward"))
    last = BACK if back else WHOLE
    if isinstance(op, aten._FftR2cDefault) and op.arg("onesided"):
        last = REAL
    # From the last axis on, for it alone reads real numbers; back to them it comes at the end.
    turns: list[Turn] = []
    at = len(turned)
    while at:
        kind = last if at == len(turned) else WHOLE
        both = at > 1 and kind != BACK and able[at - 2] and able[at - 1]
        first = at - 1 - both
        turns.append(Turn(kind, turned[first:at], points[first:at], inverse, able[at - 1]))
        at = first
    return turns[::-1] if back else turns


def _turned(turn: Turn, parts: Parts, b: Builder) -> Parts:
    """The axes behind the others, as images, and back where they were."""
    rank, count = len(shape_of(parts[0])), len(turn.axes)
    order = [at for at in range(rank) if at not in turn.axes] + list(turn.axes)
    moved = [b.transpose(part, order) for part in parts]
    shape = list(shape_of(moved[0]))
    image = (prod(shape[: rank - count]), *([1] * (2 - count)), *shape[rank - count :])
    images = [b.reshape(part, image) for part in moved]
    made = _transformed(turn, images, b) if turn.has_operator else _multiplied(turn, images, b)
    shape[rank - count :] = shape_of(made[0])[3 - count :]
    back = [order.index(at) for at in range(rank)]
    return [b.transpose(b.reshape(part, shape), back) for part in made]


def _transformed(turn: Turn, images: Parts, b: Builder) -> Parts:
    """`[N, H, W]` by one operator: the parts that are asked for."""
    if turn.kind == BACK:
        return _fourier(_all_points(images, turn.points[0], b), True, b)[:1]
    if turn.kind == REAL:
        *outer, last = shape_of(images[0])
        half = tensor((*outer, last // 2 + 1), f32)
        made = t.RFFT2dOp.create(operands=[images[0]], result_types=[half, half])
        return b.rw.insert(made).results
    if len(images) == 1:
        images = (images[0], b.constant(torch.zeros(*shape_of(images[0]))))
    return _fourier(images, turn.inverse, b)


def _fourier(parts: Parts, inverse: bool, b: Builder) -> Parts:
    properties = {"inverse": BoolAttr.from_bool(inverse)}
    made = t.FFT2dOp.create(
        operands=list(parts), result_types=[p.type for p in parts], properties=properties
    )
    return b.rw.insert(made).results


def _all_points(parts: Parts, size: int, b: Builder) -> Parts:
    """All points of a transform whose result is real: the others are the conjugates of these.

    The imaginary parts of the first and the middle point add to an imaginary result alone.
    """
    count = size - size // 2 - 1
    if not count:
        return parts
    made: list[SSAValue] = []
    for part, is_imaginary in zip(parts, (False, True), strict=True):
        back = b.op(
            t.ReverseOp,
            [narrow(part, 2, 1, count, b)],
            (*shape_of(part)[:2], count),
            f32,
            axis=IntegerAttr(2, i32),
        )
        other = b.scalar(t.MulOp, back, -1.0) if is_imaginary else back
        made.append(b.concat([part, other], 2))
    return made


def _multiplied(turn: Turn, images: Parts, b: Builder) -> Parts:
    """`[N, 1, K]` by one product of both parts, side by side, with a matrix."""
    matrix = transform_matrix(turn.kind, turn.points[0], turn.inverse, len(images) == 2)
    n = shape_of(images[0])[0]
    row = b.reshape(images[0] if len(images) == 1 else b.concat(images, 2), (1, n, len(matrix)))
    y = b.matmul(row, b.constant(matrix[None]))
    made = 1 if turn.kind == BACK else 2
    width = matrix.shape[1] // made
    return [b.reshape(narrow(y, 2, part * width, width, b), (n, 1, width)) for part in range(made)]


@cache
def transform_matrix(kind: str, points: int, inverse: bool, takes_pairs: bool) -> torch.Tensor:
    """`f32[K, M]`: a row of K numbers, real ones or both parts in a row, times it is transformed.

    Made of whole multiples of a turn, so that no angle is larger than one.
    """
    half = points // 2 + 1
    rows, columns = {REAL: (points, half), WHOLE: (points, points), BACK: (half, points)}[kind]
    turns = torch.outer(torch.arange(rows), torch.arange(columns)) % points
    angle = turns.double() * (2 * math.pi / points)
    cosines, sines = angle.cos(), angle.sin() * (1 if inverse else -1)
    sines[2 * turns % points == 0] = 0  # A real sum has imaginary parts of exactly 0 there.
    if kind == BACK:  # Each point but the first and the middle one stands for its conjugate too.
        twice = torch.full((half, 1), 2.0, dtype=torch.float64)
        twice[0] = 1
        if points % 2 == 0:
            twice[-1] = 1
        return torch.cat([twice * cosines, -twice * sines]).float()
    top = torch.cat([cosines, sines], 1)
    if not takes_pairs:
        return top.float()
    return torch.cat([top, torch.cat([-sines, cosines], 1)]).float()


def _parts(x: SSAValue, b: Builder) -> Parts:
    """Both parts of a complex value."""
    shape = shape_of(x)
    both = pair(x, b.rw)
    return [b.reshape(narrow(both, len(shape), place, 1, b), shape) for place in range(2)]


def _paired(parts: Parts, b: Builder) -> SSAValue:
    """A complex value of two parts."""
    shape = shape_of(parts[0])
    return whole(b.concat([b.reshape(part, (*shape, 1)) for part in parts], len(shape)), b.rw)
