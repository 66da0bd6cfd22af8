"""Operators of complex numbers as those of pairs of real ones, which stand on an axis behind the others.

`view_as_real` and `view_as_complex` of each other are what they were given, so that nothing complex is
left between an operator that makes it and one that reads its parts.

Before:
    func.func @forward(%x: tensor<3x5x2xf32>) -> tensor<3x5xf32> {
      %c = aten.view_as_complex.default(%x) : (tensor<3x5x2xf32>) -> tensor<3x5xcomplex<f32>>
      %y = aten.abs.default(%c) : (tensor<3x5xcomplex<f32>>) -> tensor<3x5xf32>
      func.return %y : tensor<3x5xf32>
    }
After:
    func.func @forward(%x: tensor<3x5x2xf32>) -> tensor<3x5xf32> {
      %0 = aten.mul.Tensor(%x, %x) : (tensor<3x5x2xf32>, tensor<3x5x2xf32>) -> tensor<3x5x2xf32>
      %1 = aten.sum.dim_IntList(%0, [-1]) : (tensor<3x5x2xf32>) -> tensor<3x5xf32>
      %y = aten.sqrt.default(%1) : (tensor<3x5xf32>) -> tensor<3x5xf32>
      func.return %y : tensor<3x5xf32>
    }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import ComplexType, TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.aten.building import (
    axis,
    cat,
    emit,
    permute,
    slice_axis,
    static_dims,
    view,
)

COMPLEX = ComplexType(f32)
"""Numbers that a pair of f32 stands for."""

SHAPED = (
    aten.ViewDefault,
    aten.ReshapeDefault,
    aten.UnsqueezeDefault,
    aten.SqueezeDim,
    aten.SqueezeDims,
)
"""What keeps the order of elements."""


@dataclass(frozen=True)
class OfComplex:
    """An operator that takes or gives complex numbers, of known shapes."""

    op: SchemaOp


@dataclass(frozen=True)
class ComplexToPairs(Rewrite[OfComplex]):
    """Magnitudes, products and views of complex numbers, by their parts."""

    name: ClassVar[str] = "complex-to-pairs-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.AbsDefault,
        aten.CloneDefault,
        aten.MulTensor,
        aten.PermuteDefault,
        aten.TransposeInt,
        aten.ViewAsRealDefault,
        *SHAPED,
    )
    bound: ClassVar[Bound] = Bound(2e-5, 1e-5, "magnitudes and products round in another order")

    def match(self, op: SchemaOp, program: Program) -> OfComplex | Refusal | None:
        """Guards: complex numbers of single precision, known shapes, complex on both sides."""
        values = [v for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)]
        if not any(isinstance(element(v.type), ComplexType) for v in values):
            return None
        if isinstance(op, aten.ViewAsRealDefault):
            made = op.operands[0].owner
            return OfComplex(op) if isinstance(made, aten.ViewAsComplexDefault) else None
        held = {element(v.type) for v in values if isinstance(element(v.type), ComplexType)}
        if held != {COMPLEX}:
            return Refusal("TOSA computes with numbers of single precision")
        if any(static_dims(v) is None for v in values):
            return Refusal("the shape is symbolic")
        if isinstance(op, aten.MulTensor) and {element(v.type) for v in values} != {COMPLEX}:
            return Refusal("one factor is real, the other complex")
        return OfComplex(op)

    def build(self, match: OfComplex, rw: Rewriter) -> None:
        """Parts are read, and what is complex is made of them again."""
        op = match.op
        if isinstance(op, aten.ViewAsRealDefault):
            made = op.operands[0].owner
            assert isinstance(made, aten.ViewAsComplexDefault)
            rw.replace(op, [made.operands[0]])
            return
        parts = _of_pairs(op, rw)
        is_size = isinstance(op, aten.AbsDefault)
        rw.replace(op, [_magnitude(parts, rw) if is_size else whole(parts, rw)])


def _of_pairs(op: SchemaOp, rw: Rewriter) -> SSAValue:
    """The parts of the result; of a magnitude, those of its operand."""
    shape = dims(op.results[0].type)
    pairs = [pair(value, rw) for value in op.operands]
    match op:
        case aten.MulTensor():
            return _product(pairs, rw)
        case aten.PermuteDefault():
            order = [axis(number, len(shape)) for number in op.arg("dims")]
            return permute(rw, pairs[0], [*order, len(shape)])
        case aten.TransposeInt():
            order = list(range(len(shape) + 1))
            one, other = (axis(op.arg(name), len(shape)) for name in ("dim0", "dim1"))
            order[one], order[other] = other, one
            return permute(rw, pairs[0], order)
        case _:
            return view(rw, pairs[0], (*shape, 2)) if isinstance(op, SHAPED) else pairs[0]


def _product(pairs: Sequence[SSAValue], rw: Rewriter) -> SSAValue:
    (a, b), (c, d) = (_halves(parts, rw) for parts in pairs)

    def times(one: SSAValue, other: SSAValue) -> SSAValue:
        return emit(rw, aten.MulTensor.make(one, other))

    real = emit(rw, aten.SubTensor.make(times(a, c), times(b, d)))
    imaginary = emit(rw, aten.AddTensor.make(times(a, d), times(b, c)))
    return cat(rw, [real, imaginary], len(dims(real.type)) - 1)


def _halves(parts: SSAValue, rw: Rewriter) -> tuple[SSAValue, SSAValue]:
    last = len(dims(parts.type)) - 1
    return slice_axis(rw, parts, last, 0, 1), slice_axis(rw, parts, last, 1, 2)


def _magnitude(parts: SSAValue, rw: Rewriter) -> SSAValue:
    """√(a² + b²)."""
    squares = emit(rw, aten.MulTensor.make(parts, parts))
    total = emit(rw, aten.SumDimIntList.make(squares, [-1]))
    return emit(rw, aten.SqrtDefault.make(total))


def pair(value: SSAValue, rw: Rewriter) -> SSAValue:
    """Both parts of a complex value, on an axis behind the others."""
    made = tensor((*dims(value.type), 2), f32)
    return emit(rw, aten.ViewAsRealDefault.make(value, result_types=[made]))


def whole(parts: SSAValue, rw: Rewriter) -> SSAValue:
    """The complex value of which these are both parts."""
    made = tensor(dims(parts.type)[:-1], COMPLEX)
    return emit(rw, aten.ViewAsComplexDefault.make(parts, result_types=[made]))
