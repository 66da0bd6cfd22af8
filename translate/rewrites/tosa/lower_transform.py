"""Fourier transforms of one or two axes to RFFT2D and FFT2D, which only `+fft` has.

TOSA has no complex numbers: a complex value is a pair of real ones on an axis of its own behind the
others, as `view_as_real` gives it, and TOSA's operators take both parts apart.

Before:
    func.func @forward(%x: tensor<3x8xf32>) -> tensor<3x5x2xf32> {
      %c = aten._fft_r2c.default(%x, [1], 0, true) : (tensor<3x8xf32>) -> tensor<3x5xcomplex<f32>>
      %y = aten.view_as_real.default(%c) : (tensor<3x5xcomplex<f32>>) -> tensor<3x5x2xf32>
      func.return %y : tensor<3x5x2xf32>
    }
After:
    func.func @forward(%x: tensor<3x8xf32>) -> tensor<3x5x2xf32> {
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
      func.return %y : tensor<3x5x2xf32>
    }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from xdsl.dialects.builtin import BoolAttr, IntegerAttr
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.targets import level_of
from stepwell.ir.dtypes import f32, i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.aten.building import axis, static_dims
from stepwell.translate.rewrites.tosa.building import Builder, narrow, shape_of
from stepwell.translate.rewrites.tosa.complex_to_pairs import COMPLEX, pair, whole
from stepwell.translate.rewrites.tosa.lowering import Lowerable, LowerToTosa

Pair = tuple[SSAValue, SSAValue]
"""Real and imaginary parts, of one shape."""

NORMALISATIONS = (0.0, -0.5, -1.0)
"""By PyTorch's numbers: the power of the transform's size that its result is multiplied by."""


@dataclass(frozen=True)
class LowerTransform(LowerToTosa):
    """`_fft_r2c` and `_fft_c2r` over the parts of complex numbers."""

    name: ClassVar[str] = "lower-transform-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten._FftR2cDefault,
        aten._FftC2rDefault,
    )
    bound: ClassVar[Bound] = Bound(2e-5, 1e-5, "sums of products in another order")

    def match(self, op: SchemaOp, program: Program) -> Lowerable | Refusal | None:
        """Guards: one or two axes of known sizes that are powers of two, in single precision."""
        x, y = op.operands[0], op.results[0]
        if not {element(x.type), element(y.type)} <= {f32, COMPLEX}:
            return Refusal("TOSA transforms numbers of single precision")
        held, made = static_dims(x), static_dims(y)
        if held is None or made is None:
            return Refusal("the shape is symbolic")
        turned = _axes(op)
        if len(set(turned)) < len(turned) or op.arg("normalization") not in range(3):
            return Refusal("an axis is named twice, or the normalisation is none of PyTorch's")
        most = 1 if isinstance(op, aten._FftC2rDefault) else 2
        if not 1 <= len(turned) <= most:
            return Refusal(f"a transform of {len(turned)} axes, where at most {most} can be")
        if 0 in held:
            return Refusal("TOSA has no empty tensors")
        sizes = _sizes(op)
        if any(size & (size - 1) for size in sizes):
            return Refusal(f"a transform of {list(sizes)}: TOSA's are of powers of two")
        most = level_of(program.context.target).kernel
        if any(size > most for size in sizes):
            return Refusal(f"a transform of {list(sizes)} is above {most}")
        return Lowerable(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """The parts as images, transformed and scaled."""
        x, sizes = op.operands[0], _sizes(op)
        rank = len(dims(x.type))
        turned = _axes(op)
        order = [at for at in range(rank) if at not in turned] + list(turned)
        scale = float(prod(sizes)) ** NORMALISATIONS[op.arg("normalization")]
        parts = (x,) if element(x.type) == f32 else _parts(x, b)
        moved = [b.transpose(part, order) for part in parts]
        shape = list(shape_of(moved[0]))
        image = [*([1] * (2 - len(turned))), *shape[rank - len(turned) :]]
        images = [b.reshape(m, (prod(shape[: rank - len(turned)]), *image)) for m in moved]
        made = _transformed(op, images, b)
        back = [order.index(at) for at in range(rank)]
        shape[rank - len(turned) :] = shape_of(made[0])[3 - len(turned) :]
        done: list[SSAValue] = []
        for part in made:
            scaled = part if scale == 1 else b.scalar(t.MulOp, part, scale)
            done.append(b.transpose(b.reshape(scaled, shape), back))
        return done[0] if isinstance(op, aten._FftC2rDefault) else _paired(done, b)


def _axes(op: SchemaOp) -> tuple[int, ...]:
    """In the order of the argument: the last one is the one of which half is held."""
    rank = len(dims(op.operands[0].type))
    return tuple(axis(number, rank) for number in op.arg("dim"))


def _sizes(op: SchemaOp) -> tuple[int, ...]:
    """How many points are transformed, axis by axis."""
    if isinstance(op, aten._FftC2rDefault):
        return (op.arg("last_dim_size"),)
    shape = static_dims(op.operands[0])
    assert shape is not None
    return tuple(shape[at] for at in _axes(op))


def _transformed(op: SchemaOp, images: Sequence[SSAValue], b: Builder) -> Sequence[SSAValue]:
    """The parts of the result that are asked for, `[N, H, W]` each."""
    if isinstance(op, aten._FftC2rDefault):
        return _fourier(_whole((images[0], images[1]), op.arg("last_dim_size"), b), True, b)[:1]
    if op.arg("onesided"):
        *outer, last = shape_of(images[0])
        half = tensor((*outer, last // 2 + 1), f32)
        made = t.RFFT2dOp.create(operands=[images[0]], result_types=[half, half])
        return b.rw.insert(made).results
    return _fourier((images[0], b.constant(torch.zeros(*shape_of(images[0])))), False, b)


def _fourier(parts: Pair, inverse: bool, b: Builder) -> Sequence[SSAValue]:
    properties = {"inverse": BoolAttr.from_bool(inverse)}
    made = t.FFT2dOp.create(
        operands=list(parts), result_types=[p.type for p in parts], properties=properties
    )
    return b.rw.insert(made).results


def _whole(parts: Pair, size: int, b: Builder) -> Pair:
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
    return made[0], made[1]


def _parts(x: SSAValue, b: Builder) -> Pair:
    """Both parts of a complex value."""
    shape = shape_of(x)
    both = pair(x, b.rw)
    real, imaginary = (
        b.reshape(narrow(both, len(shape), place, 1, b), shape) for place in range(2)
    )
    return real, imaginary


def _paired(parts: Sequence[SSAValue], b: Builder) -> SSAValue:
    """A complex value of two parts."""
    shape = shape_of(parts[0])
    return whole(b.concat([b.reshape(part, (*shape, 1)) for part in parts], len(shape)), b.rw)
