"""The scratch pad on which a lowering runs while it matches.

Operations are created without being inserted. A refusal drops them, and the weights that were
referenced. After a match, the collected operations are inserted in place of the op, so that a
function runs only once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Operation, SSAValue

from stepwell.ir.core import WeightOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewriter import Rewriter


class Pad(Rewriter):
    """A rewriter that collects ops until `splice` inserts them; it cannot replace or erase.

    `on_first`, if any, is called when the first op is recorded, and may refuse.
    """

    def __init__(
        self, root: Operation, program: Program, on_first: Callable[[], None] | None = None
    ) -> None:
        self.root, self.program, self._on_first = root, program, on_first
        self.inserted: list[Operation] = []
        self._heads: dict[str, WeightOp] = {}
        self._weights_before = len(program.weights)

    def insert(self, op: Operation, before: Operation | None = None) -> Operation:
        """Record an op, which `splice` inserts before the root."""
        assert before is None, "a lowering inserts before the op only"
        self.inserted.append(op)
        if self._on_first is not None and len(self.inserted) == 1:
            self._on_first()
        return op

    def weight(self, key: str, kind: str = "constant") -> SSAValue:
        """Return the value of a weight, which is later inserted once at the start of the scope."""
        weight_op = self._heads.get(key)
        if weight_op is None:
            weight_op = self._heads[key] = WeightOp(key, self.weights.type_of(key), kind)
        return weight_op.result

    def replace_value(self, old: SSAValue, new: SSAValue) -> None:
        """Raise an error, because a lowering replaces nothing while matching."""
        raise AssertionError("a lowering replaces nothing: it returns its results")

    def erase(self, op: Operation) -> None:
        """Raise an error, because a lowering erases nothing while matching."""
        raise AssertionError("a lowering erases nothing: it returns its results")

    def drop(self) -> None:
        """Remove all operations that were recorded."""
        for op in self.inserted:
            op.drop_all_references()
        self.weights.forget_from(self._weights_before)

    def splice(self, values: Sequence[SSAValue | None], rw: Rewriter) -> list[SSAValue | None]:
        """Insert all operations before the root, and return the values, which may be weights."""
        heads: dict[SSAValue, SSAValue] = {}
        for key, op in self._heads.items():
            heads[op.result] = weight = rw.weight(key, op.kind.data)
            op.result.replace_all_uses_with(weight)
        for op in self.inserted:
            rw.insert(op)
        return [None if value is None else heads.get(value, value) for value in values]
