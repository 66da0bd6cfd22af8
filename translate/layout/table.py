"""The interface between a target and the layout engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.ir.axes.maps import AxisMap, Flat, Order, axis_map, inverse
from stepwell.ir.core import weight_key
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.side_effects import is_one_of
from stepwell.ir.types import dims


@dataclass(frozen=True)
class Turning:
    """How to rebuild an op on bases (values before transposes): the axis orders of result and
    operands.
    """

    order: Order
    operands: dict[int, Order]


class Layouts(ABC):
    """A target's layout table. A value is `transpose(base, order)`, as in `ir.axes`.

    Abstract methods are specific to a target; axis maps determine how orders pass through ops.
    """

    KINDS: ClassVar[tuple[type[Operation], ...]]
    """The ops that may be rebuilt."""

    @abstractmethod
    def transposed(self, value: SSAValue) -> tuple[SSAValue, Order] | None:
        """Return the operand and order of the transpose that computes a value, if one does."""

    @abstractmethod
    def may_turn(self, op: Operation, turning: Turning) -> bool:
        """Whether the target has an equally fast op on these bases (operands before their
        transposes).
        """

    def data(self, op: Operation, axes: AxisMap) -> list[int]:
        """Return the operands whose memory order of axes follows the result's; the other operands
        are parameters.
        """
        return [index for index, links in enumerate(axes.links) if links is not None]

    def is_constant(self, value: SSAValue) -> bool:
        """Whether a value is known at compile time."""
        return weight_key(value) is not None

    def is_free(self, value: SSAValue) -> bool:
        """Whether a value has any order at no cost: a constant, or one element."""
        return self.is_constant(value) or is_one(value)

    def can_be_had(self, value: SSAValue, order: Order) -> bool:
        """Whether the base of a value can be computed."""
        return len(dims(value.type)) == len(order)

    @abstractmethod
    def cost(self, value: SSAValue, order: Order) -> float:
        """Return the cost of a transpose between a value and its base."""

    def gain(self, op: Operation, turning: Turning) -> float:
        """Return the savings of an op on bases compared with the original; negative for a loss."""
        return 0.0

    @abstractmethod
    def base(self, rw: Rewriter, value: SSAValue, order: Order) -> SSAValue:
        """Return a value's base (the value before its transpose): computed for a constant, else
        transposed.
        """

    @abstractmethod
    def back(self, rw: Rewriter, base: SSAValue, order: Order, type_: Attribute) -> SSAValue:
        """Return the value of type `type_` whose base, the value before its transpose, is given."""

    @abstractmethod
    def rebuilt(
        self, rw: Rewriter, op: Operation, operands: list[SSAValue], order: Order
    ) -> SSAValue:
        """Insert an equivalent op on bases; return its result, the base in `order` of the op's
        result.
        """

    # -- derived from axis maps ------------------------------------------------------------------

    def turning(self, op: Operation, value: SSAValue, order: Order) -> Turning | None:
        """Return how to rebuild an op so that `value`, an operand or result, has this order."""
        is_kind = len(op.results) == 1 and is_one_of(type(op), self.KINDS)
        axes = axis_map(op) if is_kind else None
        if axes is None:
            return None
        data = self.data(op, axes)
        if not data:  # No axis map relates the operands' axes to the result's.
            return None
        result: Order | None = order
        if value is not op.results[0]:
            at = next((index for index in data if op.operands[index] is value), None)
            result = None if at is None else axes.order_after(at, order)
        if result is None:
            return None
        operands: dict[int, Order] = {}
        for index in data:
            read = self._read(op, axes, index, result)
            if read is None or not self.can_be_had(op.operands[index], read):
                return None
            operands[index] = read
        found = Turning(result, operands)
        return found if self.may_turn(op, found) else None

    def _read(self, op: Operation, axes: AxisMap, index: int, order: Order) -> Order | None:
        """Return the order in which an operand is read if the result has `order`.

        Next to a reshape, axes of size 1 may be at any position, and keep the one that a transpose
        gives them. An operand that is broadcast from fewer axes has no other order, since its axes
        are last in every order.
        """
        value = op.operands[index]
        if not any(isinstance(link, Flat) for link in axes.links[index] or ()):
            if self.is_free(value):
                return order
            is_whole = len(axes.shapes[index]) == len(order)
            return axes.order_before(index, order) if is_whole else None
        found, standing = axes.order_before(index, order), self.transposed(value)
        if found is None or standing is None:
            return found
        return standing[1] if are_alike(dims(value.type), standing[1], found) else found


def is_one(value: SSAValue) -> bool:
    """Whether a value has one element, so that its layout is the same in every order."""
    return all(size == 1 for size in dims(value.type))


def are_alike(shape: tuple[object, ...], one: Order, other: Order) -> bool:
    """Whether two orders of a shape differ at most in the positions of axes of size one."""
    first, second = ([a for a in inverse(o) if shape[a] != 1] for o in (one, other))
    return first == second


def is_as_it_is(order: Order) -> bool:
    """Whether an order moves no axis, so that rebuilding its users saves nothing."""
    return order == tuple(range(len(order)))
