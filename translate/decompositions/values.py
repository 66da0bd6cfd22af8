"""Tensor values with arithmetic operators, which write ATen ops.

Shapes are written in the canonical form that every target reads (`rewrites/building.py`); types are
stated, not inferred. An operation on a value and a Python number becomes the operator on tensor and
scalar.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.rewriting.rewrite import EXACT, Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.sizes.size import Dim
from stepwell.ir.types import dims, element, tensor, with_element
from stepwell.translate.lowerings.goals import Goal, goal
from stepwell.translate.lowerings.lowering import no_refusal, refuse
from stepwell.translate.rewrites import building

Number = float | bool
_T = TypeVar("_T")


class Value:
    """A tensor value of the IR, with the rewriter that inserts operations on it."""

    __slots__ = ("b", "ssa")

    def __init__(self, ssa: SSAValue, b: Rewriter) -> None:
        self.ssa, self.b = ssa, b

    # -- properties --------------------------------------------------------------------------

    @property
    def dtype(self) -> Attribute:
        """Return the element type."""
        return element(self.ssa.type)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Return the sizes: ints, and a `Size` for each symbolic size."""
        return dims(self.ssa.type)

    @property
    def rank(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every size is a number."""
        return building.static_dims(self.ssa) is not None

    @property
    def key(self) -> str | None:
        """Return the weight's key; None if the value is not a weight."""
        return weight_key(self.ssa)

    @property
    def owner(self) -> Operation | Any:
        """Return the operation that defines the value, or the block if it is a block argument."""
        return self.ssa.owner

    def axis(self, dim: int) -> int:
        """Return an axis counted from the front."""
        return building.axis(dim, self.rank)

    def _of(self, ssa: SSAValue) -> Value:
        return Value(ssa, self.b)

    def constant(self, values: torch.Tensor, name: str = "constant") -> Value:
        """Insert a small constant before the op that uses this value."""
        return self._of(self.b.constant(values, name))

    def derived(self, recipe: str, **options: Any) -> Value:
        """Return the derived weight that a recipe computes from this weight."""
        assert self.key is not None, "a weight"
        return self._of(self.b.weight(self.b.weights.derive(recipe, [self.key], **options)))

    # -- ops ---------------------------------------------------------------------------------

    def call(
        self,
        op: str | type[SchemaOp],
        *arguments: Any,
        shape: Sequence[Dim] | None = None,
        dtype: Attribute | None = None,
        **named: Any,
    ) -> Value:
        """Insert an op on this value; the result has its type unless a shape or dtype is stated."""
        cls = op_class(f"aten.{op}") if isinstance(op, str) else op
        type_ = self.ssa.type
        wanted = self.shape if shape is None else tuple(shape)
        if wanted != self.shape or dtype is not None:
            type_ = tensor(wanted, dtype or self.dtype)
        plain = [
            argument.ssa if isinstance(argument, Value) else argument for argument in arguments
        ]
        new = cls.make(self.ssa, *plain, **named, result_types=[type_])
        return self._of(building.emit(self.b, new))

    def binary(self, of_tensors: type[SchemaOp], of_numbers: type[SchemaOp], other: Any) -> Value:
        """Insert an op of two broadcast tensors of one element type, or of tensor and number."""
        if not isinstance(other, Value):
            return self.call(of_numbers, other)
        return self.call(of_tensors, other, shape=broadcast(self.shape, other.shape))

    def __add__(self, other: Value | Number) -> Value:
        return self.binary(aten.AddTensor, aten.AddScalar, other)

    def __sub__(self, other: Value | Number) -> Value:
        return self.binary(aten.SubTensor, aten.SubScalar, other)

    def __mul__(self, other: Value | Number) -> Value:
        return self.binary(aten.MulTensor, aten.MulScalar, other)

    def reduce(self, cls: type[SchemaOp], axes: Sequence[int]) -> Value:
        """Insert a reduction that keeps its axes; axes count from the front."""
        return self._of(building.reduced(self.b, cls, self.ssa, axes))

    def cast(self, dtype: Attribute) -> Value:
        """Insert a conversion, or return the value itself if it has the type."""
        return self._of(building.cast(self.b, self.ssa, dtype))

    def affine(self, weight: SSAValue | None, bias: SSAValue | None) -> Value:
        """Return `self * weight + bias`, broadcasting over leading axes."""
        value = self if weight is None else self.call(aten.MulTensor, self._of(weight))
        return value if bias is None else value.call(aten.AddTensor, self._of(bias))

    # -- axes --------------------------------------------------------------------------------

    def view(self, *shape: Dim) -> Value:
        """Reshape the value; sizes that no view can state are refused."""
        no_refusal(building.cannot_be_viewed_as(self.ssa, shape))
        return self._of(building.view(self.b, self.ssa, shape))

    def permute(self, order: Sequence[int]) -> Value:
        """Return the value with permuted axes."""
        return self._of(building.permute(self.b, self.ssa, order))

    def slice(self, at: int, start: int, stop: int) -> Value:
        """Return a part of one axis with constant bounds."""
        return self._of(building.slice_axis(self.b, self.ssa, at, start, stop))

    def last(self, at: int, count: int) -> Value:
        """Return the last rows of an axis, which may be dynamic but has at least `count` rows."""
        return self._of(
            building.emit(
                self.b, building.slice_op(self.ssa, at, -count, building.TO_THE_END, count)
            )
        )

    def expand(self, *shape: Dim) -> Value:
        """Repeat the value along axes of size 1."""
        return self._of(building.expand(self.b, self.ssa, shape))


def again(
    op: SchemaOp, operands: Sequence[Value], dtype: Attribute | None = None
) -> tuple[Value, ...]:
    """Insert a copy of an op with other operands; its results may have another element type."""
    b = operands[0].b
    types = [r.type if dtype is None else with_element(r.type, dtype) for r in op.results]
    new = b.insert(remade(op, [value.ssa for value in operands], types))
    return tuple(Value(result, b) for result in new.results)


def cat(parts: Sequence[Value], at: int) -> Value:
    """Concatenate parts along an axis, which may be dynamic."""
    return Value(building.cat(parts[0].b, [part.ssa for part in parts], at), parts[0].b)


def broadcast(one: Sequence[Dim], other: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the common shape of two shapes that broadcast."""
    rank = max(len(one), len(other))
    pairs = zip((*[1] * (rank - len(one)), *one), (*[1] * (rank - len(other)), *other), strict=True)
    return tuple(right if left == 1 else left for left, right in pairs)


def needs_static(*values: Value, what: str = "the shape is symbolic") -> None:
    """Refuse the value if one of its sizes is symbolic."""
    if not all(value.is_static for value in values):
        refuse(what)


goal("aten", Goal(EXACT, lambda rw: rw, Value, lambda value: dims(value.type), None))
