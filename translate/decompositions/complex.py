"""Decompositions of complex arithmetic into arithmetic on pairs of real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from xdsl.dialects.builtin import ComplexType, TensorType
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.compat.xdsl.xdsl_private import operands_of
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.families import is_of
from stepwell.ir.dtypes import f32
from stepwell.ir.identity_cache import once_each
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.rewrites.building import (
    axis,
    cannot_be_viewed_as,
    cat,
    emit,
    expand,
    is_known,
    permute,
    slice_axis,
    static_dims,
    view,
)

COMPLEX = ComplexType(f32)
"""Complex element types whose parts are f32."""

COMPLEX_OF = op_class("aten.complex.default")
POLAR = op_class("aten.polar.default")
CONJUGATES = tuple(
    op_class(f"aten.{name}.default") for name in ("_conj", "conj_physical", "_conj_physical")
)
ANGLE = op_class("aten.angle.default")

AS_IS = (aten.CloneDefault, aten.ResolveConjDefault, aten.ResolveNegDefault)
SUMS = (aten.AddTensor, aten.SubTensor)


def _is_shaped(op: SchemaOp) -> bool:
    """Whether an op only changes the shape and keeps the elements in order."""
    return is_of(op, "reshape") and not isinstance(op, AS_IS)


@once_each
def _is_complex(type_: Attribute) -> bool:
    return isinstance(type_, TensorType) and isinstance(element(type_), ComplexType)


PARTWISE = """
    mul.Tensor abs.default angle.default complex.default polar.default add.Tensor sub.Tensor
    mul.Scalar div.Scalar neg.default _to_copy.default permute.default transpose.int expand.default
    slice.Tensor select.int cat.default view_as_real.default view.default reshape.default
    unsqueeze.default squeeze.dim squeeze.dims"""


def _has_none(op: Any) -> bool:
    return not any(_is_complex(v.type) for v in (*operands_of(op), *op.results))


@lowers(
    *(f"aten.{name}" for name in PARTWISE.split()),
    *(cls.name for cls in (*CONJUGATES, *AS_IS)),
    to="aten",
    phases=("tosa/decompose",),
    unless=_has_none,
    bound=roundings("magnitudes and products round in another order"),
    sample="""
    %c = aten.view_as_complex.default(%x) : (tensor<3x5x2xf32>) -> tensor<3x5xcomplex<f32>>
    %y = aten.abs.default(%c) : (tensor<3x5xcomplex<f32>>) -> tensor<3x5xf32>
    """,
)
def complex_to_pairs(*, op: Any, b: Rewriter) -> Value | None:
    """Decompose complex operators into real ones; the last axis of size 2 has the real and
    imaginary parts.

    `view_as_real(view_as_complex(x))` is x, and vice versa. No complex value is left between an
    operator that creates it and one that reads its parts.
    """
    if isinstance(op, aten.ViewAsRealDefault):
        owner = op.operands[0].owner
        is_pair = isinstance(owner, aten.ViewAsComplexDefault)
        return Value(owner.operands[0], b) if is_pair else None
    values = [v for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)]
    if not {element(v.type) for v in values} <= {COMPLEX, f32}:
        refuse("the parts of the complex numbers are not of single precision")
    if not all(is_known(dims(v.type)) for v in values):
        refuse("the shape is not known, not even as an expression")
    no_refusal(_refuses(op) or _refuses_open(op))
    parts = _of_pairs(op, b)
    if isinstance(op, aten.AbsDefault):
        return Value(_magnitude(parts, b), b)
    if isinstance(op, ANGLE):
        real, imaginary = (view(b, half, dims(op.results[0].type)) for half in _halves(parts, b))
        return Value(emit(b, aten.Atan2Default.make(imaginary, real)), b)
    return Value(whole(parts, b), b)


def _refuses(op: SchemaOp) -> Refusal | None:
    """Return why an operator of complex numbers has no decomposition into parts."""
    result_element = element(op.results[0].type)
    match op:
        case aten.AddTensor() | aten.SubTensor():
            if op.arg("alpha") != 1 or any(element(v.type) != COMPLEX for v in op.operands):
                return Refusal("alpha is not 1, or one term is real and the other complex")
        case aten.MulScalar() | aten.DivScalar():
            if not isinstance(op.arg("other"), int | float):
                return Refusal("the factor is a complex or a dynamic number")
        case aten.SliceTensor() | aten.SelectInt():
            names = ("start", "end", "index")
            named = [op.arg(name) for name in names if name in op.SCHEMA.by_name]
            if any(isinstance(number, SSAValue) for number in named):
                return Refusal("an index is known only at run time")
        case aten.CatDefault():
            if any(element(v.type) != COMPLEX for v in op.operands):
                return Refusal("one concatenated tensor is real and another complex")
        case aten._ToCopyDefault() if result_element != COMPLEX:
            return Refusal("the op drops imaginary parts")
        case _:
            pass
    return None


def _refuses_open(op: SchemaOp) -> Refusal | None:
    """Return why an operator with symbolic sizes has no decomposition into parts."""
    values = [v for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)]
    if all(static_dims(v) is not None for v in values):
        return None
    shape = dims(op.results[0].type)
    match op:
        case _ if _is_shaped(op) or isinstance(op, (aten.CatDefault, aten._ToCopyDefault)):
            if _is_shaped(op):
                return cannot_be_viewed_as(op.operands[0], shape)
            if len({element(v.type) for v in values}) > 1 or isinstance(op, aten.CatDefault):
                return Refusal("the shape is symbolic")
        case _ if isinstance(op, (aten.ExpandDefault, COMPLEX_OF, POLAR)):
            of_size = [at - len(shape) for at, d in enumerate(shape) if not isinstance(d, int)]
            for value in op.operands:
                held = dims(value.type) if isinstance(value.type, TensorType) else shape
                if any(-at > len(held) or held[at] != shape[at] for at in of_size):
                    return Refusal("the number of repetitions is known only at run time")
        case _:
            pass
    return None


def _of_pairs(op: SchemaOp, rw: Rewriter) -> SSAValue:
    """Return the result of a complex operator as real and imaginary parts on a last axis."""
    shape = dims(op.results[0].type)
    rank = len(shape)
    if isinstance(op, aten.MulTensor):
        return _product(op.operands, rw)
    if isinstance(op, COMPLEX_OF | POLAR):
        parts = [expand(rw, value, shape) for value in op.operands]
        if isinstance(op, POLAR):
            size, angle = parts
            turned = [
                emit(rw, function.make(angle)) for function in (aten.CosDefault, aten.SinDefault)
            ]
            parts = [emit(rw, aten.MulTensor.make(size, of_angle)) for of_angle in turned]
        return cat(rw, [view(rw, part, (*shape, 1)) for part in parts], rank)
    pairs = [pair(value, rw) for value in op.operands if isinstance(value.type, TensorType)]
    first = pairs[0]
    match op:
        case aten.AddTensor() | aten.SubTensor():
            return emit(rw, type(op).make(*pairs))
        case aten.MulScalar() | aten.DivScalar():
            return emit(rw, type(op).make(first, op.arg("other")))
        case aten.NegDefault():
            return emit(rw, aten.NegDefault.make(first))
        case aten.PermuteDefault():
            order = [axis(number, rank) for number in op.arg("dims")]
            return permute(rw, first, [*order, rank])
        case aten.TransposeInt():
            order = list(range(rank + 1))
            one, other = (axis(op.arg(name), rank) for name in ("dim0", "dim1"))
            order[one], order[other] = other, one
            return permute(rw, first, order)
        case aten.ExpandDefault():
            return expand(rw, first, (*shape, 2))
        case aten.CatDefault():
            return cat(rw, pairs, axis(op.arg("dim"), rank))
        case aten.SliceTensor():
            at = axis(op.arg("dim"), rank)
            given = (at, op.arg("start"), op.arg("end"), op.arg("step"))
            return emit(rw, aten.SliceTensor.make(first, *given))
        case aten.SelectInt():
            at = axis(op.arg("dim"), rank + 1)
            return emit(rw, aten.SelectInt.make(first, at, op.arg("index")))
        case _ if isinstance(op, CONJUGATES):
            return emit(rw, aten.MulTensor.make(first, rw.constant(torch.tensor([1.0, -1.0]))))
        case _:
            return view(rw, first, (*shape, 2)) if _is_shaped(op) else first


def _product(factors: Sequence[SSAValue], rw: Rewriter) -> SSAValue:
    """Return the parts of the product of complex numbers, one of which may be real."""
    if any(element(value.type) != COMPLEX for value in factors):
        each = [
            pair(value, rw)
            if element(value.type) == COMPLEX
            else view(rw, value, (*dims(value.type), 1))
            for value in factors
        ]
        return emit(rw, aten.MulTensor.make(*each))
    (a, b), (c, d) = (_halves(pair(value, rw), rw) for value in factors)

    def times(one: SSAValue, other: SSAValue) -> SSAValue:
        return emit(rw, aten.MulTensor.make(one, other))

    real = emit(rw, aten.SubTensor.make(times(a, c), times(b, d)))
    imaginary = emit(rw, aten.AddTensor.make(times(a, d), times(b, c)))
    return cat(rw, [real, imaginary], len(dims(real.type)) - 1)


def _halves(parts: SSAValue, rw: Rewriter) -> tuple[SSAValue, SSAValue]:
    last = len(dims(parts.type)) - 1
    return slice_axis(rw, parts, last, 0, 1), slice_axis(rw, parts, last, 1, 2)


def _magnitude(parts: SSAValue, rw: Rewriter) -> SSAValue:
    """Return the absolute value √(a² + b²) of complex numbers a + bi."""
    squares = emit(rw, aten.MulTensor.make(parts, parts))
    total = emit(rw, aten.SumDimIntList.make(squares, [-1]))
    return emit(rw, aten.SqrtDefault.make(total))


def pair(value: SSAValue, rw: Rewriter) -> SSAValue:
    """Return both parts on a last axis; the imaginary parts of a real value are 0."""
    shape = dims(value.type)
    if element(value.type) == COMPLEX:
        result_type = tensor((*shape, 2), f32)
        return emit(rw, aten.ViewAsRealDefault.make(value, result_types=[result_type]))
    known = static_dims(value)
    assert known is not None
    zeros = rw.constant(torch.zeros(*known, 1))
    return cat(rw, [view(rw, value, (*shape, 1)), zeros], len(shape))


def whole(parts: SSAValue, rw: Rewriter) -> SSAValue:
    """Return the complex value whose real and imaginary parts are a tensor's last axis."""
    result_type = tensor(dims(parts.type)[:-1], COMPLEX)
    return emit(rw, aten.ViewAsComplexDefault.make(parts, result_types=[result_type]))


RULES = lowerings_of(__name__)
