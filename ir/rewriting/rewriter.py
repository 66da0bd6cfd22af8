"""The interface for changes in `build`: insert, replace and erase ops, and add weights. Each change
is recorded.

Only `ir/rewriting/rewrite.py` creates a `Rewriter`, one for each application. Its record becomes
the event of the history and tells the driver which ops to revisit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue
from xdsl.traits import IsolatedFromAbove

from stepwell.ir.compat.xdsl.xdsl_private import discard, operands_of, put_before, replace_uses
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import node_name, op_name
from stepwell.ir.program import Program
from stepwell.ir.side_effects import is_pure
from stepwell.ir.weights import WeightStore
from stepwell.ir.work import operations, size

if TYPE_CHECKING:
    from torch import Tensor

_Op = TypeVar("_Op", bound=Operation)


@dataclass
class Scope:
    """The `stepwell.weight` ops at the start of a block, indexed by key."""

    block: Block
    _ops: dict[str, WeightOp] | None = None
    _last: WeightOp | None = None

    def find(self, key: str) -> WeightOp | None:
        """Return the `stepwell.weight` op of a key, if the block contains it."""
        if self._ops is None:
            self._ops = {}
            for op in self.block.ops:
                if not isinstance(op, WeightOp):
                    break
                self._ops.setdefault(op.key.data, op)
                self._last = op
        found = self._ops.get(key)
        return found if found is not None and found.parent is self.block else None

    def add(self, op: WeightOp) -> None:
        """Add an op after the block's other weights; `find` must have returned None before."""
        assert self._ops is not None
        if self._last is not None and self._last.parent is self.block:
            self.block.insert_op_after(op, self._last)
        elif self.block.first_op is not None:
            self.block.insert_op_before(op, self.block.first_op)
        else:
            self.block.add_op(op)
        self._ops[op.key.data] = op
        self._last = op


@dataclass
class Rewriter:
    """The changes that `build` may make at the matched op. Locations and name hints are kept."""

    root: Operation
    program: Program
    scopes: dict[Block, Scope] = field(default_factory=dict[Block, Scope])
    """The weight ops of blocks, shared by all applications of a run."""
    inserted: list[Operation] = field(default_factory=list[Operation])
    """New ops."""
    erased: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])
    """The op name and node name of each erased op."""
    gone: dict[Operation, tuple[SSAValue, ...]] = field(
        default_factory=dict[Operation, tuple[SSAValue, ...]]
    )
    """Each erased op with its operands."""
    costs: dict[Operation, int] = field(default_factory=dict[Operation, int])
    """The work of each erased op, which its operands state."""
    touched: list[Operation] = field(default_factory=list[Operation])
    """Ops to revisit, because they may match now."""
    replaced: list[tuple[SSAValue, SSAValue]] = field(
        default_factory=list[tuple[SSAValue, SSAValue]]
    )
    """Each replaced value with its replacement."""
    superseded: list[SSAValue] = field(default_factory=list[SSAValue])
    """Replacements with other elements than the values that they replace; their users
    compensate.
    """
    modified: list[Operation] = field(default_factory=list[Operation])
    """Ops that were modified in place."""
    saving: float = 0.0
    """The estimated nanoseconds that the new ops save (`Refusal.saving`)."""
    home: Block = field(init=False)
    """The block of the root's weights, also after the root is erased."""

    def __post_init__(self) -> None:
        self.home = scope_of(self.root)

    @property
    def weights(self) -> WeightStore:
        """Return the program's weight store; derive weights from it or add constants to it."""
        return self.program.weights

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a statistic of this rewrite, which the report of the lowering shows."""
        self.program.context.count(name, amount)

    def insert(self, op: Operation, before: Operation | None = None) -> Operation:
        """Insert a new op before the root (or another op), with the root's location."""
        anchor = before or self.root
        op.location = self.root.location
        put_before(op, anchor)
        self.inserted.append(op)
        return op

    def weight(self, key: str, kind: str = "constant") -> SSAValue:
        """Return the value of a weight for the root; each scope has one `stepwell.weight` op per
        key.
        """
        scope = self.scopes.setdefault(self.home, Scope(self.home))
        weight_op = scope.find(key)
        if weight_op is None:
            weight_op = WeightOp(key, self.weights.type_of(key), kind)
            weight_op.location = self.root.location
            scope.add(weight_op)
            self.inserted.append(weight_op)
        return weight_op.result

    def constant(self, tensor: Tensor, hint: str = "constant") -> SSAValue:
        """Add a small constant tensor and return its value."""
        return self.weight(self.weights.constant(tensor, hint))

    def replace(self, op: Operation, values: Sequence[SSAValue]) -> None:
        """Replace every result of an op by a value of the same type, and erase the op."""
        for old, new in zip(op.results, values, strict=True):
            assert old.type == new.type, f"{op_name(op)}: {old.type} replaced by {new.type}"
            self.replace_value(old, new)
        self.erase(op)

    def replace_value(self, old: SSAValue, new: SSAValue) -> None:
        """Replace all uses of `old` by `new`, of any type."""
        self.touched.extend([use.operation for use in old.uses])
        self.replaced.append((old, new))
        replace_uses(old, new)

    def supersede(self, old: SSAValue, new: SSAValue) -> None:
        """Replace all uses of `old` by `new`, which has other elements; the rewrite also changes
        the users.
        """
        self.touched.extend([use.operation for use in old.uses])
        self.superseded.append(new)
        replace_uses(old, new)

    def set_operand(self, op: Operation, index: int, value: SSAValue) -> None:
        """Change one operand in place."""
        owner = operands_of(op)[index].owner
        op.operands[index] = value
        self.changed(op)
        if isinstance(owner, Operation):
            self.touched.append(owner)

    def erase(self, op: Operation) -> None:
        """Erase an op without uses; the driver removes operands without other uses."""
        self.erased.append((op_name(op), node_name(op.location)))
        self.costs[op] = operations(op)
        operands = self.gone[op] = operands_of(op)
        discard(op)
        self.touched.extend(neighbors(operands))

    def changed(self, op: Operation) -> None:
        """Record that an op was changed in place."""
        self.modified.append(op)
        self.touched.append(op)

    def name_fused(self) -> list[Operation]:
        """Name what the root was fused into after the product in it that costs most, as a
        convolution with the batch norm that was the root; return the ops that are dead by that.
        """
        dying: dict[Operation, None] = {}
        left = [value.owner for operands in self.gone.values() for value in operands]
        while left:
            op = left.pop()
            if not isinstance(op, Operation) or op in dying or not is_pure(op) or not op.parent:
                continue
            if all(use.operation in dying for result in op.results for use in result.uses):
                dying[op] = None
                left += [value.owner for value in operands_of(op)]
        costs = {**self.costs, **{op: operations(op) for op in dying}}
        written = {op: sum(size(result.type) for result in op.results) for op in costs}
        products = (op for op in costs if costs[op] > written[op] and node_name(op.location))
        costliest = max(products, key=costs.__getitem__, default=self.root)
        if self.root in costs and costs[self.root] < costs[costliest]:
            max(self.inserted, key=operations, default=self.root).location = costliest.location
        return [op for op in dying if op not in self.inserted]


def remade(op: _Op, operands: Sequence[SSAValue], types: Sequence[Attribute]) -> _Op:
    """Create the same op with other operands and result types, without inserting it."""
    return type(op).create(
        operands=operands,
        result_types=types,
        properties=dict(op.properties),
        attributes=dict(op.attributes),
    )


def scope_of(op: Operation) -> Block:
    """Return the entry block of the nearest isolated region, which contains the weights."""
    current = op
    while True:
        block = current.parent
        assert block is not None, f"{op_name(op)} is not in a method"
        owner = block.parent_op()
        if owner is None or _is_isolated(type(owner)):
            return block
        current = owner


@cache
def _is_isolated(cls: type[Operation]) -> bool:
    return cls.has_trait(IsolatedFromAbove)


_FEW = 16
"""The number of a value's users that are revisited after one of them was erased."""


def neighbors(operands: Iterable[SSAValue]) -> Iterable[Operation]:
    """List ops that may match after a user of `operands` was erased: producers and other users."""
    ops: list[Operation] = []
    for value in operands:
        owner = value.owner
        if type(value) is OpResult:
            ops.append(value.op)
        if type(owner) is not WeightOp:
            for count, use in enumerate(value.uses):
                if count == _FEW:
                    break
                ops.append(use.operation)
    return ops
