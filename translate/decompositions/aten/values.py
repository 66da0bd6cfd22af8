"""Values that compute like numbers, in aten's ops.

Layouts are written in the normal form that every target reads (`rewrites/building.py`); types are
stated, not inferred. A number beside a value stays a number: the op of tensors and numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.core import weight_key
from stepwell.ir.rewriting.rewrite import EXACT, Refusal, Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.sizes.size import Dim
from stepwell.ir.types import dims, element, tensor, with_element
from stepwell.translate.lowerings.lowering import Goal, goal, refuse
from stepwell.translate.rewrites import building

Number = float | bool
_T = TypeVar("_T")


class Value:
    """A tensor on the pad, with what writes ops beside it."""

    __slots__ = ("b", "ssa")

    def __init__(self, ssa: SSAValue, b: Rewriter) -> None:
        self.ssa, self.b = ssa, b

    # -- what it is --------------------------------------------------------------------------

    @property
    def dtype(self) -> Attribute:
        """The element type."""
        return element(self.ssa.type)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes: ints, and a `Size` where one is symbolic."""
        return dims(self.ssa.type)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every size is a number."""
        return building.static_dims(self.ssa) is not None

    @property
    def key(self) -> str | None:
        """The name of the weight that it is."""
        return weight_key(self.ssa)

    @property
    def owner(self) -> Operation | Any:
        """What made it: an op, or the block whose argument it is."""
        return self.ssa.owner

    def axis(self, dim: int) -> int:
        """An axis counted from the front."""
        return building.axis(dim, self.rank)

    def _of(self, ssa: SSAValue) -> Value:
        return Value(ssa, self.b)

    def constant(self, values: torch.Tensor, name: str = "constant") -> Value:
        """A small constant beside this value."""
        return self._of(self.b.constant(values, name))

    def derived(self, recipe: str, **options: Any) -> Value:
        """What a recipe makes of this weight."""
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
        """An op of this value, of its type unless another shape or element type is stated."""
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
        """An op of two tensors of one element type, broadcast, or of a tensor and a number."""
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
        """A reduction that keeps its axes, counted from the front."""
        return self._of(building.reduced(self.b, cls, self.ssa, axes))

    def cast(self, dtype: Attribute) -> Value:
        """A conversion; itself where it has the type."""
        return self._of(building.cast(self.b, self.ssa, dtype))

    def affine(self, weight: SSAValue | None, bias: SSAValue | None) -> Value:
        """`self * weight + bias`, broadcasting over leading axes."""
        value = self if weight is None else self.call(aten.MulTensor, self._of(weight))
        return value if bias is None else value.call(aten.AddTensor, self._of(bias))

    # -- axes --------------------------------------------------------------------------------

    def view(self, *shape: Dim) -> Value:
        """The same elements in another shape; refused: sizes that no view can state."""
        refusal = building.cannot_be_viewed_as(self.ssa, shape)
        if refusal is not None:
            refuse(refusal.reason)
        return self._of(building.view(self.b, self.ssa, shape))

    def permute(self, order: Sequence[int]) -> Value:
        """The axes in another order."""
        return self._of(building.permute(self.b, self.ssa, order))

    def slice(self, at: int, start: int, stop: int) -> Value:
        """A part of one axis, whose bounds are numbers."""
        return self._of(building.slice_axis(self.b, self.ssa, at, start, stop))

    def last(self, at: int, count: int) -> Value:
        """The last rows of an axis that may be open; every size has so many."""
        return self._of(
            building.emit(
                self.b, building.slice_op(self.ssa, at, -count, building.TO_THE_END, count)
            )
        )

    def expand(self, *shape: Dim) -> Value:
        """Repeated along axes of size 1."""
        return self._of(building.expand(self.b, self.ssa, shape))


def again(
    op: SchemaOp, operands: Sequence[Value], dtype: Attribute | None = None
) -> tuple[Value, ...]:
    """An op of other operands, with results of its own element types or of another one."""
    b = operands[0].b
    types = [r.type if dtype is None else with_element(r.type, dtype) for r in op.results]
    new = b.insert(remade(op, [value.ssa for value in operands], types))
    return tuple(Value(result, b) for result in new.results)


def cat(parts: Sequence[Value], at: int) -> Value:
    """Parts one after the other, along an axis that may be open."""
    return Value(building.cat(parts[0].b, [part.ssa for part in parts], at), parts[0].b)


def broadcast(one: Sequence[Dim], other: Sequence[Dim]) -> tuple[Dim, ...]:
    """The common shape of two that torch has found to agree."""
    rank = max(len(one), len(other))
    pairs = zip((*[1] * (rank - len(one)), *one), (*[1] * (rank - len(other)), *other), strict=True)
    return tuple(right if left == 1 else left for left, right in pairs)


def needs_static(*values: Value, what: str = "the shape is symbolic") -> None:
    """Refuse sizes that are no numbers."""
    if not all(value.is_static for value in values):
        refuse(what)


def no_refusal(refusal: Refusal | None) -> None:
    """Refuse where a guard of several rewrites does."""
    if refusal is not None:
        refuse(refusal.reason)


def answered(found: _T | Refusal) -> _T:
    """What a question of several rewrites gives; refuse where it does."""
    if isinstance(found, Refusal):
        refuse(found.reason)
    return found


goal("aten", Goal(EXACT, lambda rw: rw, Value, lambda value: dims(value.type), None))
