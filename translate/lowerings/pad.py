"""The scratch pad on which a lowering runs while it matches.

Operators are made and stand nowhere; a refusal drops them, and the weights named on the way.
What matched is put in the op's place as it is: a function runs once.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from stepwell.ir.core import WeightOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewriter import Rewriter


class Pad(Rewriter):
    """A rewriter that inserts nothing before it is told to; it cannot replace or erase."""

    def __init__(self, root: Operation, program: Program) -> None:
        self.root, self.program = root, program
        self.inserted: list[Operation] = []
        self._heads: dict[str, WeightOp] = {}
        self._weights_before = len(program.weights)

    def insert(self, op: Operation, before: Operation | None = None) -> Operation:
        """Note an op; it is inserted where the root stands."""
        assert before is None, "a lowering writes where the op stands"
        self.inserted.append(op)
        return op

    def weight(self, key: str, kind: str = "constant") -> SSAValue:
        """The value of a weight, which will stand once at the head of the root's scope."""
        weight_op = self._heads.get(key)
        if weight_op is None:
            weight_op = self._heads[key] = WeightOp(key, self.weights.type_of(key), kind)
        return weight_op.result

    def replace_value(self, old: SSAValue, new: SSAValue) -> None:
        """Not while matching."""
        raise AssertionError("a lowering replaces nothing: it returns what it has made")

    def erase(self, op: Operation) -> None:
        """Not while matching."""
        raise AssertionError("a lowering erases nothing: it returns what it has made")

    def drop(self) -> None:
        """Leave no trace."""
        for op in self.inserted:
            op.drop_all_references()
        self.weights.forget_from(self._weights_before)

    def splice(self, values: Sequence[SSAValue | None], rw: Rewriter) -> list[SSAValue | None]:
        """Put everything in front of the root; gives the values, which may be weights."""
        heads: dict[SSAValue, SSAValue] = {}
        for key, op in self._heads.items():
            heads[op.result] = weight = rw.weight(key, op.kind.data)
            op.result.replace_all_uses_with(weight)
        for op in self.inserted:
            rw.insert(op)
        return [None if value is None else heads.get(value, value) for value in values]
