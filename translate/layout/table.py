"""What a target says to the layout engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.ir.axes import AxisMap, Order, axis_map, inverse
from stepwell.ir.rewriting import Rewriter
from stepwell.ir.types import dims


@dataclass(frozen=True)
class Turning:
    """An op in another order: the order of its result, and of the operands it reads turned."""

    order: Order
    operands: tuple[tuple[int, Order], ...]

    def reads(self, index: int) -> Order | None:
        """The order in which an operand is read; None if it is read as it is."""
        return next((order for at, order in self.operands if at == index), None)


class Layouts(ABC):
    """The table of a target. Orders are those of `ir.axes`: `transpose(base, perm=order)`."""

    @abstractmethod
    def transposed(self, op: Operation) -> tuple[SSAValue, Order] | None:
        """What an op transposes and by what, if it is a transpose."""

    @abstractmethod
    def may_turn(self, op: Operation, axes: AxisMap, turning: Turning) -> bool:
        """Whether the target has an op that computes the same in these orders, as fast."""

    def data(self, op: Operation) -> Iterator[int]:
        """The operands that are tensors of the result's axes, not parameters."""
        yield from range(len(op.operands))

    @abstractmethod
    def is_free(self, value: SSAValue) -> bool:
        """Whether a value has any order at no cost: a constant, or one element."""

    def can_be_had(self, value: SSAValue, order: Order) -> bool:
        """Whether a value, free or not, can be given in the order of its base."""
        return len(dims(value.type)) == len(order)

    @abstractmethod
    def cost(self, value: SSAValue, order: Order) -> float:
        """What the transpose of a value to or from its base costs."""

    @abstractmethod
    def base(self, rw: Rewriter, value: SSAValue, order: Order) -> SSAValue:
        """A value in the order of its base: computed for a constant, else transposed."""

    @abstractmethod
    def back(self, rw: Rewriter, base: SSAValue, order: Order, type_: Attribute) -> SSAValue:
        """The value that has this base."""

    @abstractmethod
    def rebuilt(
        self, rw: Rewriter, op: Operation, operands: list[SSAValue], order: Order
    ) -> SSAValue:
        """The result of an op of the same kind on operands in their orders: the base of its own."""

    # -- what follows from axis maps -------------------------------------------------------------

    def turning(self, op: Operation, value: SSAValue, order: Order) -> Turning | None:
        """An op turned so that `value`, an operand or its result, is in this order; None if not."""
        axes = axis_map(op) if len(op.results) == 1 else None
        if axes is None:
            return None
        if value is op.results[0]:
            result: Order | None = order
        else:
            at = next((i for i in self.data(op) if op.operands[i] is value), None)
            result = None if at is None else axes.order_after(at, order)
        if result is None or len(result) != len(axes.shape):
            return None
        operands: list[tuple[int, Order]] = []
        for index in self.data(op):
            read = self.read_in(op, axes, index, result)
            if read is None or not self.can_be_had(op.operands[index], read):
                return None
            operands.append((index, read))
        found = Turning(result, tuple(operands))
        return found if self.may_turn(op, axes, found) else None

    def read_in(self, op: Operation, axes: AxisMap, index: int, order: Order) -> Order | None:
        """The order in which an operand is read if the result has `order`.

        Axes of size 1 may stand anywhere: where a transpose already has them, they stay. Operands
        that are free have the result's order, whatever their rank.
        """
        value = op.operands[index]
        if self.is_free(value):
            return order
        found = axes.order_before(index, order)
        owner = value.owner
        standing = self.transposed(owner) if isinstance(owner, Operation) else None
        if found is None or standing is None:
            return found
        return standing[1] if are_alike(dims(value.type), standing[1], found) else found


def are_alike(shape: tuple[object, ...], one: Order, other: Order) -> bool:
    """Whether two orders of a shape differ in where axes of size one stand, if at all."""
    first, second = ([a for a in inverse(o) if shape[a] != 1] for o in (one, other))
    return first == second
