"""What `build` may do to a program: insert, replace, erase, and name weights, each noted.

Only `ir/rewriting/rewrite.py` makes a `Rewriter`, one for each application; what it notes becomes
the event of the history, and tells the driver which ops to look at again.
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
from stepwell.ir.weights import WeightStore

if TYPE_CHECKING:
    from torch import Tensor

_Op = TypeVar("_Op", bound=Operation)


@dataclass
class Scope:
    """The `stepwell.weight`s at the head of a block, found by key without a walk each time."""

    block: Block
    _ops: dict[str, WeightOp] | None = None
    _last: WeightOp | None = None

    def find(self, key: str) -> WeightOp | None:
        """The op of a key, if it stands in the block."""
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
        """Put an op behind the block's other weights, after `find` did not find it."""
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
    """What `build` may do, around the op that matched. Locations and name hints are kept."""

    root: Operation
    program: Program
    scopes: dict[Block, Scope] = field(default_factory=dict[Block, Scope])
    """Where weights stand, shared by all applications of a run."""
    inserted: list[Operation] = field(default_factory=list[Operation])
    """New ops."""
    erased: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])
    """Op name and node name of each op that went."""
    gone: dict[Operation, tuple[SSAValue, ...]] = field(
        default_factory=dict[Operation, tuple[SSAValue, ...]]
    )
    """Each op that went, with what it read."""
    touched: list[Operation] = field(default_factory=list[Operation])
    """Ops that may match anew."""
    replaced: list[tuple[SSAValue, SSAValue]] = field(
        default_factory=list[tuple[SSAValue, SSAValue]]
    )
    """Each value that was replaced, with its replacement."""
    superseded: list[SSAValue] = field(default_factory=list[SSAValue])
    """Values that stand for others and hold other numbers, which their readers make up for."""
    modified: list[Operation] = field(default_factory=list[Operation])
    """Ops that were changed in place."""
    home: Block = field(init=False)
    """Where the root's weights stand, also once the root is erased."""

    def __post_init__(self) -> None:
        self.home = scope_of(self.root)

    @property
    def weights(self) -> WeightStore:
        """The program's store; derive from it or add constants to it."""
        return self.program.weights

    def insert(self, op: Operation, before: Operation | None = None) -> Operation:
        """Put a new op before the root (or another op), with the root's location."""
        anchor = before or self.root
        op.location = self.root.location
        put_before(op, anchor)
        self.inserted.append(op)
        return op

    def weight(self, key: str, kind: str = "constant") -> SSAValue:
        """The value of a weight, visible at the root: one `stepwell.weight` a key and scope."""
        scope = self.scopes.setdefault(self.home, Scope(self.home))
        weight_op = scope.find(key)
        if weight_op is None:
            weight_op = WeightOp(key, self.weights.type_of(key), kind)
            weight_op.location = self.root.location
            scope.add(weight_op)
            self.inserted.append(weight_op)
        return weight_op.result

    def constant(self, tensor: Tensor, hint: str = "constant") -> SSAValue:
        """A small new constant tensor as a value."""
        return self.weight(self.weights.constant(tensor, hint))

    def replace(self, op: Operation, values: Sequence[SSAValue]) -> None:
        """Replace every result of an op and erase it. Types must be the same."""
        for old, new in zip(op.results, values, strict=True):
            assert old.type == new.type, f"{op_name(op)}: {old.type} replaced by {new.type}"
            self.replace_value(old, new)
        self.erase(op)

    def replace_value(self, old: SSAValue, new: SSAValue) -> None:
        """Let every use of `old` use `new` instead; whatever the types."""
        self.touched.extend([use.operation for use in old.uses])
        self.replaced.append((old, new))
        replace_uses(old, new)

    def supersede(self, old: SSAValue, new: SSAValue) -> None:
        """Let every use of `old` use `new`, which holds other numbers: its readers change too."""
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
        """Take away an op that nothing uses; what only it used is swept up by the driver."""
        self.erased.append((op_name(op), node_name(op.location)))
        operands = self.gone[op] = operands_of(op)
        discard(op)
        self.touched.extend(neighbors(operands))

    def changed(self, op: Operation) -> None:
        """Say that an op was changed in place."""
        self.modified.append(op)
        self.touched.append(op)


def remade(op: _Op, operands: Sequence[SSAValue], types: Sequence[Attribute]) -> _Op:
    """The same operator on other operands, with other result types; it is not inserted."""
    return type(op).create(
        operands=operands,
        result_types=types,
        properties=dict(op.properties),
        attributes=dict(op.attributes),
    )


def scope_of(op: Operation) -> Block:
    """The entry block of the nearest isolated region around an op: where its weights stand."""
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
"""Readers of a value that are looked at again when one of them went."""


def neighbors(operands: Iterable[SSAValue]) -> Iterable[Operation]:
    """Who may match anew after a reader of `operands` went: their makers and other readers."""
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
