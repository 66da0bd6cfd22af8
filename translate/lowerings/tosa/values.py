"""Tensor values with arithmetic operators, which write TOSA operators.

A number in an operation with a value becomes a constant of its element type and rank. Integers and
floats do not mix, as in TOSA: `to` converts. NaN and rounding behave as in TOSA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, reduce
from math import copysign, frexp, isinf
from typing import Any, NoReturn

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, IntegerType
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.forms import FORMS
from stepwell.dialects.tosa.targets import level_of
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import dtype_name, f16, f32, i1, i8, i32, i64, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.sizes.size import Dim, settled
from stepwell.ir.types import element
from stepwell.translate.lowerings.goals import Goal, goal
from stepwell.translate.lowerings.lowering import refuse
from stepwell.translate.rewrites.tosa.operators.building import (
    FLOATS,
    Builder,
    accumulator,
    broadcast,
    shape_of,
)
from stepwell.translate.rewrites.tosa.operators.lowering import is_scalar, unfit
from stepwell.translate.rewrites.tosa.operators.sizes import is_known

WHOLE = (i32, i64)
"""Element types of TOSA's integer arithmetic."""
Number = float | bool


@cache
def has_form(cls: type[TosaOp], attribute: Attribute, given: Attribute) -> bool:
    """Whether an operator takes one element type and returns another, for some target."""
    table = FORMS.get(cls, {})
    return (attribute, given) in table or ((attribute,) in table and given in (attribute, i1))


def needs(cls: type[TosaOp], attribute: Attribute, given: Attribute) -> None:
    """Refuse element types that the operator does not support."""
    if not has_form(cls, attribute, given):
        refuse(f"{cls.name} does not take {dtype_name(attribute)}")


class Value:
    """A tensor value on the scratch pad, with the builder that inserts operators on it."""

    __slots__ = ("b", "ssa")

    def __init__(self, ssa: SSAValue, b: Builder) -> None:
        self.ssa, self.b = ssa, b

    # -- properties --------------------------------------------------------------------------

    @property
    def dtype(self) -> Attribute:
        """Return the tensor's element type."""
        return element(self.ssa.type)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Return the tensor's sizes."""
        return shape_of(self.ssa)

    @property
    def rank(self) -> int:
        """Return the tensor's number of axes."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether the value has floats with which TOSA computes."""
        return self.dtype in FLOATS

    @property
    def key(self) -> str | None:
        """Return the weight's key; None if the value is not a weight."""
        return weight_key(self.ssa)

    @property
    def constant(self) -> torch.Tensor | None:
        """Return the elements, if they are known at compile time."""
        return None if self.key is None else self.b.rw.weights.get(self.key)

    def derived(self, recipe: str, **options: Any) -> Value:
        """Return the derived weight that a recipe computes from this weight."""
        assert self.key is not None, "a weight"
        return self._of(self.b.weight(self.b.rw.weights.derive(recipe, [self.key], **options)))

    def _of(self, ssa: SSAValue) -> Value:
        return Value(ssa, self.b)

    def tensor(self, values: torch.Tensor) -> Value:
        """Return a constant tensor in the program of this value."""
        return self._of(self.b.constant(values))

    def like(self, other: Value | Number) -> Value:
        """Return a number as a constant of this value's type; other values unchanged."""
        return other if isinstance(other, Value) else self._of(self.b.splat(other, self.ssa))

    # -- arithmetic --------------------------------------------------------------------------

    def binary(
        self,
        cls: type[TosaOp],
        other: Value | Number,
        held: Attribute | None = None,
        swapped: bool = False,
    ) -> Value:
        """Insert an elementwise operator of two operands, brought to one rank.

        Two different element types, or one that the operator does not support, are refused.
        """
        if isinstance(other, Value) and other.dtype != self.dtype:
            refuse("the operands have several dtypes")
        needs(cls, self.dtype, held or self.dtype)
        left, right = self, self.like(other)
        if swapped:
            left, right = right, left
        rank = max(left.rank, right.rank)
        left, right = left.of_rank(rank), right.of_rank(rank)
        shape = broadcast(left.shape, right.shape)
        shift = [self.b.zero(i8)] if cls is t.MulOp else []
        return left.made(cls, shape, right, *shift, dtype=held)

    def unary(self, cls: type[TosaOp]) -> Value:
        """Insert an elementwise operator of one operand."""
        needs(cls, self.dtype, self.dtype)
        return self.made(cls, self.shape)

    def __add__(self, other: Value | Number) -> Value:
        return self.binary(t.AddOp, other)

    def __radd__(self, other: Number) -> Value:
        return self.binary(t.AddOp, other, swapped=True)

    def __sub__(self, other: Value | Number) -> Value:
        return self.binary(t.SubOp, other)

    def __rsub__(self, other: Number) -> Value:
        return self.binary(t.SubOp, other, swapped=True)

    def __mul__(self, other: Value | Number) -> Value:
        return self.binary(t.MulOp, other)

    def __rmul__(self, other: Number) -> Value:
        return self.binary(t.MulOp, other, swapped=True)

    def __truediv__(self, other: Value | Number) -> Value:
        """Return the product with 1 / other; TOSA does not divide floats."""
        if not isinstance(other, Value):
            value = self
            for factor in inverse(float(other), torch.finfo(torch_dtype(self.dtype))):
                value = value * factor
            return value
        if isinstance(other.ssa.owner, t.ReciprocalOp):
            return self * other._of(other.ssa.owner.input)
        if self.dtype == f16:  # 1 / x overflows for a half below 2 ** -16.
            return (self.single() * other.single().unary(t.ReciprocalOp)).cast(f16)
        return self * other.unary(t.ReciprocalOp)

    def __floordiv__(self, other: Value | Number) -> Value:
        """Return the quotient by INTDIV, which rounds toward zero."""
        return self.binary(t.IntDivOp, other)

    def __neg__(self) -> Value:
        return self.negated() if self.is_float else 0 - self

    def negated(self) -> Value:
        """Insert NEGATE without zero points."""
        zero = self.b.zero(self.dtype)
        return self.made(t.NegateOp, self.shape, zero, zero)

    def __abs__(self) -> Value:
        return self.unary(t.AbsOp)

    # -- conditions --------------------------------------------------------------------------

    def __gt__(self, other: Value | Number) -> Value:
        return self.binary(t.GreaterOp, other, i1)

    def __ge__(self, other: Value | Number) -> Value:
        return self.binary(t.GreaterEqualOp, other, i1)

    def __lt__(self, other: Value | Number) -> Value:
        return self.binary(t.GreaterOp, other, i1, swapped=True)

    def __le__(self, other: Value | Number) -> Value:
        return self.binary(t.GreaterEqualOp, other, i1, swapped=True)

    def equals(self, other: Value | Number) -> Value:
        """Return the result of EQUAL; `==` remains Python's comparison."""
        return self.binary(t.EqualOp, other, i1)

    def differs(self, other: Value | Number) -> Value:
        """Return where two tensors differ; a NaN differs from itself."""
        return ~self.equals(other)

    def __and__(self, other: Value | Number) -> Value:
        return self.binary(t.LogicalAndOp if self.dtype == i1 else t.BitwiseAndOp, other)

    def __or__(self, other: Value | Number) -> Value:
        return self.binary(t.LogicalOrOp if self.dtype == i1 else t.BitwiseOrOp, other)

    def __xor__(self, other: Value | Number) -> Value:
        return self.binary(t.LogicalXorOp if self.dtype == i1 else t.BitwiseXorOp, other)

    def __invert__(self) -> Value:
        return self.unary(t.LogicalNotOp if self.dtype == i1 else t.BitwiseNotOp)

    def __lshift__(self, places: Value | Number) -> Value:
        return self.binary(t.LogicalLeftShiftOp, places)

    def __rshift__(self, places: Value | Number) -> Value:
        """Return ARITHMETIC_RIGHT_SHIFT, which truncates."""
        count = self.like(places)
        shape = broadcast(self.shape, count.shape)
        return self.made(t.ArithmeticRightShiftOp, shape, count, round=IntegerAttr(0, i1))

    # -- element types -----------------------------------------------------------------------

    def cast(self, dtype: Attribute) -> Value:
        """Insert CAST, which rounds a float to the nearest integer."""
        if self.dtype == dtype:
            return self
        return self.made(t.CastOp, self.shape, dtype=dtype)

    def single(self) -> Value:
        """Return the value in f32; a constant is converted at compile time."""
        return (
            self.cast(f32) if self.key is None or self.dtype == f32 else self.derived("tosa_single")
        )

    def to(self, dtype: Attribute) -> Value:
        """Convert as PyTorch does: fractions are truncated, nonzero is true."""
        if self.dtype == dtype:
            return self
        if dtype == i1:
            return self.differs(0)
        if self.dtype == i1:
            numbers = [self.b.number(number, self.rank, dtype) for number in (1, 0)]
            return where(self, *map(self._of, numbers))
        if self.is_float and dtype not in FLOATS:
            positive = self > 0
            return where(positive, floor(self), ceil(self)).cast(dtype)
        return self.cast(dtype)

    # -- axes --------------------------------------------------------------------------------

    def reshape(self, *shape: Dim) -> Value:
        """Return the value reshaped to other sizes."""
        return self._of(self.b.reshape(self.ssa, shape))

    def permute(self, order: Sequence[int]) -> Value:
        """Return the value with permuted axes."""
        return self._of(self.b.transpose(self.ssa, order))

    def of_rank(self, rank: int) -> Value:
        """Add leading axes of size 1 up to a rank."""
        return self.reshape(*[1] * (rank - self.rank), *self.shape)

    def narrow(self, axis: int, start: int, size: Dim) -> Value:
        """Return a part of one axis; a part of a constant is cut at compile time."""
        shape = list(self.shape)
        if shape[axis] == size:
            return self
        if self.key is not None and isinstance(size, int):
            return self.derived("tosa_slice", axis=axis, start=start, size=size)
        starts = [start if at == axis else 0 for at in range(self.rank)]
        shape[axis] = size
        return self.made(t.SliceOp, shape, self.b.sizes(starts), self.b.sizes(shape))

    def part(self, axis: int, index: int, count: int) -> Value:
        """Return one of `count` equal parts of an axis."""
        size = self.shape[axis] // count
        return self.narrow(axis, index * size, size)

    def tile(self, shape: Sequence[Dim]) -> Value:
        """Repeat the value along its axes, up to a shape of the same rank."""
        sizes = zip(self.shape, shape, strict=True)
        multiples = [1 if size == held else size // held for held, size in sizes]
        if all(multiple == 1 for multiple in multiples):
            return self
        return self.made(t.TileOp, shape, self.b.sizes(multiples))

    def pad(self, pads: Sequence[int], fill: float = 0.0) -> Value:
        """Pad with a number: `pads` has the counts before and after each axis."""
        if not any(pads):
            return self
        sides = zip(self.shape, pads[::2], pads[1::2], strict=True)
        shape = [settled(size + before + after) for size, before, after in sides]
        return self.made(t.PadOp, shape, self.b.sizes(pads), self.b.number(fill, 1, self.dtype))

    def made(
        self,
        cls: type[TosaOp],
        shape: Sequence[Dim],
        *more: Value | SSAValue,
        dtype: Attribute | None = None,
        **properties: Attribute,
    ) -> Value:
        """Insert an operator on this and other values; by default the result has this element
        type.
        """
        operands = [value.ssa if isinstance(value, Value) else value for value in (self, *more)]
        return self._of(self.b.op(cls, operands, shape, dtype or self.dtype, **properties))

    def reduce(self, cls: type[TosaOp], axis: int) -> Value:
        """Insert a reduction that keeps its axis with size 1."""
        shape = [1 if at == axis else size for at, size in enumerate(self.shape)]
        return self.made(cls, shape, axis=IntegerAttr(axis, i32))

    def matmul(self, other: Value, bias: Value | None = None) -> Value:
        """Multiply `[B, M, K]` by `[B, K, N]`; sums of halves are f32, and rounded once with the
        bias.
        """
        shape, zero = (*self.shape[:2], other.shape[2]), self.b.zero(self.dtype)
        y = self.made(t.MatMulOp, shape, other, zero, zero, dtype=accumulator(self.dtype))
        return (y if bias is None else y + bias.single()).cast(self.dtype)

    def sum(self, axis: int) -> Value:
        """Return the sum over an axis by REDUCE_SUM."""
        return self.reduce(t.ReduceSumOp, axis)

    def axis(self, dim: int) -> int:
        """Return an axis counted from the front."""
        return dim % max(self.rank, 1)


# -- functions -------------------------------------------------------------------------------


def _unary(cls: type[TosaOp]) -> Callable[[Value], Value]:
    return lambda x: x.unary(cls)


ceil, exp, floor, log, reciprocal, rsqrt, tanh, erf, sin, cos = map(
    _unary,
    (
        t.CeilOp,
        t.ExpOp,
        t.FloorOp,
        t.LogOp,
        t.ReciprocalOp,
        t.RsqrtOp,
        t.TanhOp,
        t.ErfOp,
        t.SinOp,
        t.CosOp,
    ),
)


def where(condition: Value, a: Value | Number, other: Value | Number) -> Value:
    """Insert SELECT of operands brought to one rank; a number gets the other side's type."""
    like = a if isinstance(a, Value) else other
    assert isinstance(like, Value), "one side is a value"
    values = condition, like.like(a), like.like(other)
    rank = max(value.rank for value in values)
    chooser, *sides = (value.of_rank(rank) for value in values)
    shape = reduce(broadcast, (value.shape for value in (chooser, *sides)))
    return chooser.made(t.SelectOp, shape, *sides, dtype=like.dtype)


def maximum(a: Value, other: Value | Number) -> Value:
    """Insert MAXIMUM, which returns NaN if an operand is NaN."""
    return a.binary(t.MaximumOp, other)


def minimum(a: Value, other: Value | Number) -> Value:
    """Insert MINIMUM, which returns NaN if an operand is NaN."""
    return a.binary(t.MinimumOp, other)


def clamp(x: Value, low: float, high: float) -> Value:
    """Insert CLAMP between two numbers."""
    is_whole = isinstance(x.dtype, IntegerType)
    number: Any = IntegerAttr if is_whole else FloatAttr
    bounds = (number(int(side) if is_whole else side, x.dtype) for side in (low, high))
    return x.made(t.ClampOp, x.shape, **dict(zip(("min_val", "max_val"), bounds, strict=True)))


def concat(parts: Sequence[Value], axis: int, shape: Sequence[Dim] | None = None) -> Value:
    """Concatenate parts along an axis; `shape` overrides the result's shape."""
    first, *rest = parts
    if shape is None:
        shape = list(first.shape)
        shape[axis] = settled(sum(part.shape[axis] for part in parts))
    return first.made(t.ConcatOp, shape, *rest, axis=IntegerAttr(axis, i32))


def inverse(number: float, info: torch.finfo) -> tuple[float, ...]:
    """Return factors of 1 / number: one, or two if it is not a normal number of the type."""
    if number == 0:
        return (copysign(float("inf"), number),)
    if isinf(number) or info.tiny <= abs(1 / number) <= info.max:
        return (1 / number,)
    share, exponent = frexp(number)
    return 1 / share * 2.0 ** -(exponent // 2), 2.0 ** -(exponent - exponent // 2)


def needs_known(x: Value, axes: Sequence[int], what: str) -> None:
    """Refuse symbolic sizes if the operators for an op need static ones."""
    if not is_known([x.shape[axis] for axis in axes]):
        refuse(f"{what} {[str(x.shape[axis]) for axis in axes]} is symbolic")


def no_operator(op: SchemaOp, x: Value) -> NoReturn:
    """Refuse an element type that no operator for this op supports."""
    refuse(f"TOSA has no operator for {op.name} on {dtype_name(x.dtype)}")


def needs_floats(op: SchemaOp, x: Value) -> None:
    """Refuse types other than floats, because the operators for this op require floats."""
    if not x.is_float:
        no_operator(op, x)


def _unfit(values: Sequence[SSAValue], program: Program, takes_symbols: bool) -> Refusal | None:
    """Return why values are unsupported: their element type or size, or a size in place of a
    tensor.
    """
    level = level_of(program.context.target)
    for value in values:
        if takes_symbols and is_scalar(value):
            continue
        refusal = unfit(value, takes_symbols, level)
        if refusal is not None:
            return refusal
    return None


goal(
    "tosa",
    Goal(
        roundings("TOSA's operators round in another order"),
        Builder,
        Value,
        shape_of,
        _unfit,
    ),
)
