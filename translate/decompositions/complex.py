"""Decompositions of complex arithmetic into arithmetic on pairs of real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import ComplexType, TensorType
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.xdsl.xdsl_private import operands_of
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.families import is_of
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import complex64, f32
from stepwell.ir.identity_cache import once_each
from stepwell.ir.program import Program
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

AS_IS = (aten.CloneDefault, aten.ResolveConjDefault, aten.ResolveNegDefault)
MOVES = (aten.PermuteDefault, aten.SliceTensor)
VIEWS = (aten.ViewAsRealDefault, aten.ViewAsComplexDefault)


def _is_shaped(op: SchemaOp) -> bool:
    """Whether an op only changes the shape and keeps the elements in order."""
    return is_of(op, "reshape") and not isinstance(op, AS_IS)


@once_each
def _is_complex(type_: Attribute) -> bool:
    return isinstance(type_, TensorType) and isinstance(element(type_), ComplexType)


PARTWISE = """
    add.Tensor sub.Tensor mul.Scalar div.Scalar neg.default _to_copy.default permute.default
    transpose.int expand.default slice.Tensor select.int cat.default view_as_real.default
    view.default reshape.default unsqueeze.default squeeze.dim squeeze.dims clone.default
    resolve_conj.default resolve_neg.default abs.default""".split()
"""Operators that can be computed from pairs, too."""
OF_PARTS = """
    mul.Tensor div.Tensor add.Scalar sub.Scalar reciprocal.default exp.default mm.default
    bmm.default matmul.default angle.default complex.default polar.default real.default
    imag.default _conj.default conj_physical.default _conj_physical.default sum.dim_IntList
    mean.dim flip.default roll.default constant_pad_nd.default stack.default
    slice_scatter.default""".split()
"""Operators that are computed from real and imaginary parts."""


_SQUARED = Deviation(
    "a magnitude beyond 1.8e19 becomes infinite, and its inverse 0; one below 1e-19 becomes 0, and "
    "its inverse infinite",
    True,
)


def _has_none(op: Any) -> bool:
    return not any(_is_complex(v.type) for v in (*operands_of(op), *op.results))


def _squares(op: Any, program: Program) -> Deviation | None:
    """Return the deviation of operators that square the parts of a complex operand."""
    squares = isinstance(op, aten.AbsDefault | aten.ReciprocalDefault | aten.DivTensor)
    return _SQUARED if squares and _is_complex(op.operands[-1].type) else None


@lowers(
    *(f"aten.{name}" for name in PARTWISE + OF_PARTS),
    to="aten",
    phases=("xnnpack/normalize", "tosa/decompose"),
    unless=_has_none,
    bound=roundings("magnitudes and products round in another order"),
    deviation=_squares,
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
    is_of_kernel = b.program.context.target == "xnnpack" and isinstance(
        op.operands[0].owner, aten._FftR2cDefault
    )
    if is_of_kernel and isinstance(op, aten.PermuteDefault):
        return None  # The runtime's kernel moves pairs as a whole, which XNNPACK does not.
    if b.program.context.target == "xnnpack" and isinstance(op, aten.AbsDefault):
        magnitude, is_left = _magnitude_by_kernel(op, b)
        if is_left:
            return magnitude
    name = op.name.removeprefix("aten.")
    number = op.arg("other") if name.endswith(".Scalar") else None
    needs_parts = name in OF_PARTS or isinstance(number, complex) or _is_mixed(op)
    given = [_parts(value, b, needs_parts) for value in op.operands]
    if needs_parts or all(parts is None or (all(parts) and parts) for parts in given):
        no_refusal(_refuses_open(op))
        return _of_parts(op, name.partition(".")[0], given, number, b)
    no_refusal(_refuses(op) or _refuses_open(op))
    pairs = _of_pairs(op, b)
    return Value(_magnitude(pairs, b) if name == "abs.default" else whole(pairs, b), b)


def _is_mixed(op: SchemaOp) -> bool:
    """Whether an op adds a real and a complex value."""
    elements = {element(value.type) for value in op.operands if isinstance(value.type, TensorType)}
    return isinstance(op, aten.AddTensor | aten.SubTensor) and len(elements) > 1


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


Parts = tuple[Any, Any]
"""The real and the imaginary part of a value, or of a number; None for no imaginary part."""


def _parts(value: SSAValue, b: Rewriter, even_if_paired: bool) -> tuple[()] | Parts | None:
    """Return a tensor's parts; none if they are in pairs, which must not be taken apart."""
    if not isinstance(value.type, TensorType):
        return None
    if element(value.type) != COMPLEX:
        return Value(value, b), None
    both = pair(value, b)
    planes = planar_parts(both) or (_halves(both, b) if even_if_paired else [])
    real, imaginary = [Value(view(b, part, dims(value.type)), b) for part in planes] or (None, None)
    return (real, imaginary) if planes else ()


def _of_parts(
    op: SchemaOp, name: str, given: Sequence[Any], number: Any, b: Rewriter
) -> Value | None:
    """Return an operator's result, computed from the parts of its operands."""
    shape = dims(op.results[0].type)
    (real, imaginary), *rest = given
    match name:
        case "real" | "imag":
            return real if name == "real" else imaginary
        case "abs":
            return (real * real + imaginary * imaginary).call(aten.SqrtDefault)
        case "angle":
            return imaginary.call(aten.Atan2Default, real)
        case "exp" | "polar":
            angle = imaginary if name == "exp" else rest[0][0]
            size = real.call(aten.ExpDefault) if name == "exp" else real
            made = [size * angle.call(of) for of in (aten.CosDefault, aten.SinDefault)]
        case "complex":
            made = [real, rest[0][0]]
        case "_conj" | "conj_physical" | "_conj_physical":
            made = [real, imaginary * -1.0]
        case "reciprocal":
            made = _inverse(real, imaginary)
        case "mul" | "div" | "add" | "sub" | "mm" | "bmm" | "matmul":
            value = complex(0 if number is None else number)
            other = rest[0] if rest else (value.real, value.imag if value.imag else None)
            made = _arithmetic(op, name, (real, imaginary), other, shape)
        case _:
            no_refusal(_refuses(op))
            if any(parts and parts[1] is None for parts in given):
                refuse("one operand is real and another complex")
            made = [_again(op, [of and of[part] for of in given], b) for part in (0, 1)]
    return paired([part if part.shape == shape else part.expand(*shape) for part in made])


def _again(op: SchemaOp, parts: Sequence[Any], b: Rewriter) -> Value:
    """Apply an op that acts on real and imaginary parts alike to one of them."""
    operands = [
        value if part is None else part.ssa for value, part in zip(op.operands, parts, strict=True)
    ]
    return Value(
        b.insert(remade(op, operands, [with_element(op.results[0].type, f32)])).results[0], b
    )


def _arithmetic(
    op: SchemaOp, name: str, one: Parts, other: Parts, shape: tuple[Any, ...]
) -> list[Any]:
    """Return the parts of a sum, difference, product or quotient."""

    def times(x: Any, y: Any) -> Any:
        if x is None or y is None:
            return None
        return x * y if name in ("mul", "div") else x.call(type(op), y, shape=shape)

    def plus(x: Any, y: Any, sign: float = 1) -> Any:
        if y is None:
            return x
        if x is None:
            return y * sign
        return x + y if sign == 1 else x - y

    if name in ("add", "sub"):
        if op.arg("alpha") != 1:
            refuse("alpha is not 1")
        sign = 1 if name == "add" else -1
        real, imaginary = (plus(x, y, sign) for x, y in zip(one, other, strict=True))
        is_number = isinstance(imaginary, float)
        return [real, one[0].constant(torch.tensor(imaginary)) if is_number else imaginary]
    if name == "div":
        c, d = other
        if isinstance(c, float):
            divisor = 1 / complex(c, d or 0)
            other = divisor.real, None if d is None else divisor.imag
        elif d is None:
            common = broadcast(one[0].shape, c.shape)
            return [part.call(aten.DivTensor, c, shape=common) for part in one]
        else:
            inverse = _inverse(c, d)
            other = inverse[0], inverse[1]
    (a, b), (c, d) = one, other
    return [plus(times(a, c), times(b, d), -1), plus(times(a, d), times(b, c))]


def _inverse(real: Value, imaginary: Value) -> list[Value]:
    size = real * real + imaginary * imaginary
    return [part.call(aten.DivTensor, size) for part in (real, imaginary * -1.0)]


def _refuses(op: SchemaOp) -> Refusal | None:
    """Return why an operator of complex numbers has no decomposition into parts."""
    result_element = element(op.results[0].type)
    match op:
        case aten.AddTensor() | aten.SubTensor():
            if op.arg("alpha") != 1:
                return Refusal("alpha is not 1")
        case aten.MulScalar() | aten.DivScalar():
            if not isinstance(op.arg("other"), int | float):
                return Refusal("the factor is known only at run time")
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
        case aten.ConstantPadNdDefault() if op.arg("value"):
            return Refusal("the padding is not 0")
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
        case _ if _is_shaped(op) or isinstance(op, aten.CatDefault | aten._ToCopyDefault):
            if _is_shaped(op):
                return cannot_be_viewed_as(op.operands[0], shape)
            if len({element(v.type) for v in values}) > 1 or isinstance(op, aten.CatDefault):
                return Refusal("the shape is symbolic")
        case _ if op.name in ("aten.expand.default", "aten.complex.default", "aten.polar.default"):
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
        case _:
            return view(rw, first, (*shape, 2)) if _is_shaped(op) else first


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
