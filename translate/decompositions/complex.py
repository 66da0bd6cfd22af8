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
from stepwell.ir.dtypes import complex64, f32
from stepwell.ir.identity_cache import once_each
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.types import dims, element, tensor, with_element
from stepwell.translate.decompositions.values import Value, broadcast, no_refusal
from stepwell.translate.decompositions.values import cat as cat_values
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

COMPLEX = complex64
"""Complex element types whose parts are f32."""

COMPLEX_OF = op_class("aten.complex.default")
POLAR = op_class("aten.polar.default")
CONJUGATES = tuple(
    op_class(f"aten.{name}.default") for name in ("_conj", "conj_physical", "_conj_physical")
)
ANGLE = op_class("aten.angle.default")

AS_IS = (aten.CloneDefault, aten.ResolveConjDefault, aten.ResolveNegDefault)
SUMS = (aten.AddTensor, aten.SubTensor)
MOVES = (aten.PermuteDefault, aten.SliceTensor)
VIEWS = (aten.ViewAsRealDefault, aten.ViewAsComplexDefault)


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
OF_PARTS = """
    add.Scalar sub.Scalar div.Tensor exp.default real.default imag.default sum.dim_IntList mean.dim
    flip.default roll.default constant_pad_nd.default stack.default reciprocal.default"""
"""Operators that are computed from real and imaginary parts, not from pairs of both."""
REAL, IMAGINARY = op_class("aten.real.default"), op_class("aten.imag.default")


def _has_none(op: Any) -> bool:
    return not any(_is_complex(v.type) for v in (*operands_of(op), *op.results))


@lowers(
    *(f"aten.{name}" for name in (PARTWISE + OF_PARTS).split()),
    *(cls.name for cls in (*CONJUGATES, *AS_IS)),
    to="aten",
    phases=("xnnpack/normalize", "tosa/decompose"),
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
    if b.program.context.target == "xnnpack" and isinstance(op, aten.AbsDefault):
        magnitude, is_left = _magnitude_by_kernel(op, b)
        if is_left:
            return magnitude
    if (planar := _of_planes(op, b)) is not None:
        return planar
    if op.name.removeprefix("aten.") in OF_PARTS.split():
        refuse("its parts depend on one another, or on an argument that is not known")
    no_refusal(_refuses(op) or _refuses_open(op))
    parts = _of_pairs(op, b)
    if isinstance(op, aten.AbsDefault):
        return Value(_magnitude(parts, b), b)
    if isinstance(op, ANGLE):
        real, imaginary = (view(b, half, dims(op.results[0].type)) for half in _halves(parts, b))
        return Value(emit(b, aten.Atan2Default.make(imaginary, real)), b)
    return Value(whole(parts, b), b)


def _magnitude_by_kernel(op: SchemaOp, b: Rewriter) -> tuple[Value | None, bool]:
    """Return the magnitudes of a transform that the runtime's kernel computes, by its kernel.

    Movements between the two follow the kernel. The second result is whether the op is such a one.
    """
    source, moves = op.operands[0], list[SchemaOp]()
    while isinstance(owner := source.owner, (*MOVES, *VIEWS)):
        moves += [owner] if isinstance(owner, MOVES) else []
        source = owner.operands[0]
    if not isinstance(source.owner, aten._FftR2cDefault):
        return None, False
    if source is op.operands[0]:
        return None, True
    made = Value(
        emit(b, aten.AbsDefault.make(source, result_types=[with_element(source.type, f32)])), b
    )
    for move in reversed(moves):
        rank = len(dims(move.operands[0].type))
        if isinstance(move, aten.PermuteDefault):
            order = [axis(number, rank) for number in move.arg("dims")]
            if order[made.rank :] not in ([], [made.rank]):
                return None, False
            made = made.permute(order[: made.rank])
        else:
            shape = dims(move.results[0].type)[: made.rank]
            bounds = [move.arg(name) for name in ("start", "end", "step")]
            at = axis(move.arg("dim"), rank)
            if at >= made.rank:
                return None, False
            made = made.call(aten.SliceTensor, at, *bounds, shape=shape)
    return made, True


def _of_planes(op: SchemaOp, b: Rewriter) -> Value | None:
    """Return an operator's result computed from the real and the imaginary parts alone.

    This is None for an operator that reads pairs which are not concatenated parts, if it can be
    computed from pairs.
    """
    name = op.name.removeprefix("aten.")
    values = [v for v in op.operands if isinstance(v.type, TensorType)]
    complexes = [v for v in values if element(v.type) == COMPLEX]
    is_mixed = isinstance(op, SUMS) and len(complexes) < len(values)
    needs_parts = is_mixed or name in OF_PARTS.split()
    given = {v: _planes(v, b, even_if_paired=needs_parts) for v in complexes}
    if not needs_parts and (name not in PARTWISE.split() or not all(given.values())):
        return None
    shape = dims(op.results[0].type)
    first = given.get(op.operands[0], [])
    number = op.arg("other") if name.endswith(".Scalar") else 0
    match name.partition(".")[0]:
        case "real" | "imag":
            return Value(first[name.startswith("imag")].ssa, b)
        case "exp":
            size, angle = first[0].call(aten.ExpDefault), first[1]
            return paired([size * angle.call(aten.CosDefault), size * angle.call(aten.SinDefault)])
        case "reciprocal":
            size = first[0] * first[0] + first[1] * first[1]
            return paired([part.call(aten.DivTensor, size) for part in (first[0], first[1] * -1.0)])
        case "mul" | "add" | "sub" | "div" if isinstance(number, complex):
            return _with_number(op, first or [Value(op.operands[0], b)], number)
        case "mul" | "div" if len(values) == 2:
            return _scaled(op, given, b)
        case "add" | "sub" if is_mixed or name.endswith(".Scalar"):
            return _shifted(op, given, shape, b)
        case _ if first and len(complexes) == len(values) and name not in ("abs.default",):
            if isinstance(op, (ANGLE, aten.ViewAsRealDefault)):
                return None
            if isinstance(op, aten._ToCopyDefault | aten.ConstantPadNdDefault):
                is_same = element(op.results[0].type) == COMPLEX and not op.present().get("value")
                if not is_same:
                    return None
            parts: list[Value] = []
            for part in (0, 1):
                operands = [given[v][part].ssa if v in given else v for v in op.operands]
                type_ = with_element(op.results[0].type, f32)
                parts.append(Value(b.insert(remade(op, operands, [type_])).results[0], b))
            return paired(parts)
        case _:
            return None


def _planes(value: SSAValue, b: Rewriter, *, even_if_paired: bool) -> list[Value]:
    """Return the real and the imaginary parts of a complex value, if they are separate values."""
    both = pair(value, b)
    parts = planar_parts(both) or (_halves(both, b) if even_if_paired else [])
    return [Value(view(b, part, dims(value.type)), b) for part in parts]


def _with_number(op: SchemaOp, given: list[Value], number: complex) -> Value:
    """Return the product, quotient, sum or difference of a value and a complex number."""
    real, imaginary = given[0], given[1] if len(given) == 2 else given[0] * 0.0
    name = op.name.removeprefix("aten.")
    if name == "div.Scalar":
        number = 1 / number
    if name in ("add.Scalar", "sub.Scalar"):
        number = number * op.arg("alpha") * (1 if name == "add.Scalar" else -1)
        return paired([real + number.real, imaginary + number.imag])
    a, b = number.real, number.imag
    if len(given) == 1:
        return paired([real * a, real * b])
    return paired([real * a - imaginary * b, real * b + imaginary * a])


def _scaled(op: SchemaOp, given: dict[SSAValue, list[Value]], b: Rewriter) -> Value | None:
    """Return a product of complex and real numbers, or a quotient."""
    one, other = (given.get(value) or [Value(value, b)] for value in op.operands)
    if op.name == "aten.div.Tensor" and len(other) == 2:
        c, d = other
        size = c * c + d * d
        by = [part.call(aten.DivTensor, size) for part in (c, d * -1.0)]
    elif op.name == "aten.div.Tensor":
        shape = broadcast(one[0].shape, other[0].shape)
        return paired([part.call(aten.DivTensor, other[0], shape=shape) for part in one])
    else:
        by = other
    if len(one) == 1 or len(by) == 1:
        (real,), both = (one, by) if len(one) == 1 else (by, one)
        return paired([part * real for part in both])
    (a, b_), (c, d) = one, by
    return paired([a * c - b_ * d, a * d + b_ * c])


def _shifted(
    op: SchemaOp, given: dict[SSAValue, list[Value]], shape: tuple[Any, ...], b: Rewriter
) -> Value | None:
    """Return a sum or difference of a complex and a real value."""
    if op.arg("alpha") != 1:
        refuse("alpha is not 1")
    is_sum = op.name.startswith("aten.add")
    if op.name.endswith(".Scalar"):
        ((real, imaginary),) = given.values()
        number = op.arg("other") if is_sum else -op.arg("other")
        return paired([real + number, imaginary])
    one, other = (given.get(value) or [Value(value, b)] for value in op.operands)
    real = one[0] + other[0] if is_sum else one[0] - other[0]
    imaginary = one[1] if len(one) == 2 else other[1] if is_sum else other[1] * -1.0
    if imaginary.shape != real.shape:
        imaginary = imaginary.expand(*shape)
    return paired([real, imaginary])


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


def planar_parts(parts: SSAValue) -> list[SSAValue]:
    """Return the real and the imaginary parts, `[…, 1]`, if they are concatenated; else none."""
    owner, last = parts.owner, len(dims(parts.type)) - 1
    if not isinstance(owner, aten.CatDefault) or axis(owner.arg("dim"), last + 1) != last:
        return []
    values, wanted = list(owner.operands), tensor((*dims(parts.type)[:-1], 1), element(parts.type))
    return values if [value.type for value in values] == [wanted, wanted] else []


def _halves(parts: SSAValue, rw: Rewriter) -> Sequence[SSAValue]:
    last = len(dims(parts.type)) - 1
    return planar_parts(parts) or [slice_axis(rw, parts, last, at, at + 1) for at in (0, 1)]


def _magnitude(parts: SSAValue, rw: Rewriter) -> SSAValue:
    """Return the absolute value √(a² + b²) of complex numbers a + bi."""
    if planar := planar_parts(parts):
        shape = dims(parts.type)[:-1]
        real, imaginary = (view(rw, part, shape) for part in planar)
        squares = [emit(rw, aten.MulTensor.make(part, part)) for part in (real, imaginary)]
        return emit(rw, aten.SqrtDefault.make(emit(rw, aten.AddTensor.make(*squares))))
    squared = emit(rw, aten.MulTensor.make(parts, parts))
    total = emit(rw, aten.SumDimIntList.make(squared, [-1]))
    return emit(rw, aten.SqrtDefault.make(total))


def pair(value: SSAValue, rw: Rewriter) -> SSAValue:
    """Return both parts on a last axis; the imaginary parts of a real value are 0."""
    shape = dims(value.type)
    if isinstance(value.owner, aten.ViewAsComplexDefault):
        return value.owner.operands[0]
    if element(value.type) == COMPLEX:
        result_type = tensor((*shape, 2), f32)
        return emit(rw, aten.ViewAsRealDefault.make(value, result_types=[result_type]))
    known = static_dims(value)
    assert known is not None
    zeros = rw.constant(torch.zeros(*known, 1))
    return cat(rw, [view(rw, value, (*shape, 1)), zeros], len(shape))


def paired(parts: Sequence[Value]) -> Value:
    """Return the complex value with these real and imaginary parts."""
    shape, b = parts[0].shape, parts[0].b
    both = cat_values([part.view(*shape, 1) for part in parts], len(shape))
    return Value(whole(both.ssa, b), b)


def whole(parts: SSAValue, rw: Rewriter) -> SSAValue:
    """Return the complex value whose real and imaginary parts are a tensor's last axis."""
    result_type = tensor(dims(parts.type)[:-1], COMPLEX)
    return emit(rw, aten.ViewAsComplexDefault.make(parts, result_types=[result_type]))


RULES = lowerings_of(__name__)
