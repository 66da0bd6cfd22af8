"""Definitions of values, of which some are known to be equal, closed under congruence.

A value has a number; an op defines its results by its name, what it says and the classes of what it
reads. Two definitions that say the same of the same classes give the same values, so one equality
makes all that is computed of the two sides equal too. What is random has its own values each time.

Sources: Nelson and Oppen, Fast decision procedures based on congruence closure, JACM 1980; Willsey
et al., egg, POPL 2021 (rebuilding).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.side_effects import is_pure
from stepwell.ir.syntax.text import to_text


@dataclass(frozen=True, eq=False)
class Definition:
    """An op as it stood when it was looked at.

    Attributes:
        op: of its class; its operands may be others by now.
        operands, results: numbers of values.
        said: everything else that it says.
        regions: as they were.
    """

    op: Operation
    properties: dict[str, Attribute]
    attributes: dict[str, Attribute]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    said: str
    regions: tuple[Region, ...] = ()


ONCE = "each time anew: "
"""Begins what an op says of which two give different values: none is known by another."""


def is_repeatable(op: Operation) -> bool:
    """Whether an op gives the same of the same: nothing in it is random or has an effect."""
    calls = (each for each in op.walk() if isinstance(each, SchemaOp))
    return all(is_pure(each) or _drops_nothing(each) for each in calls)


def _drops_nothing(op: SchemaOp) -> bool:
    """Whether an operator is random for its dropout alone, and has none."""
    options = op.SCHEMA.by_name
    is_off = any(op.arg(n) == 0.0 for n in ("dropout_p", "dropout", "p") if n in options)
    is_off |= any(op.arg(n) is False for n in ("train", "training") if n in options)
    return is_off and bool(op.results) and not op.SCHEMA.is_mutable


def said_by(op: Operation) -> str:
    """What an op says beside its operands: name, fields, types; regions without names."""
    fields = [f"{name}={held}" for name, held in sorted(op.properties.items())]
    fields += [f"{name}={held}" for name, held in sorted(op.attributes.items())]
    types = [str(result.type) for result in op.results]
    begin = "" if is_repeatable(op) else ONCE
    return f"{begin}{op.name} {fields} {types} {_inside(op) if op.regions else ''}"


def _inside(op: Operation) -> str:
    """The text of an op with regions, in which values have no names of their own."""
    around = Block(arg_types=[operand.type for operand in op.operands])
    copy = op.clone(dict(zip(op.operands, around.args, strict=True)))
    around.add_op(copy)
    within = {value for inner in copy.walk() for value in _made_in(inner)} | set(around.args)
    for inner in copy.walk():
        for value in _made_in(inner):
            value.name_hint = None
        if any(operand not in within for operand in inner.operands):
            return f"of values around it, {next(_COUNTER)}"  # Equal to no other.
    return to_text(copy)


_COUNTER = count()


def _made_in(op: Operation) -> list[SSAValue]:
    arguments = [a for region in op.regions for block in region.blocks for a in block.args]
    return [*op.results, *arguments]


@dataclass
class Graph:
    """Definitions and classes of equal values."""

    definitions: dict[int, Definition] = field(default_factory=dict[int, Definition])
    """By each value's number."""
    _parents: list[int] = field(default_factory=list[int])
    _read_by: list[list[Definition]] = field(default_factory=list[list[Definition]])
    _known: dict[tuple[str, tuple[int, ...]], Definition] = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]

    def new(self) -> int:
        """The number of a value of which nothing is known."""
        self._parents.append(len(self._parents))
        self._read_by.append([])
        return len(self._parents) - 1

    def of(self, value: int) -> int:
        """The class of a value."""
        root = value
        while self._parents[root] != root:
            root = self._parents[root]
        while self._parents[value] != root:
            self._parents[value], value = root, self._parents[value]
        return root

    def are_equal(self, one: Sequence[int], other: Sequence[int]) -> bool:
        """Whether values are known to be equal, one by one."""
        return [self.of(v) for v in one] == [self.of(v) for v in other]

    def find(self, definition: Definition) -> Definition | None:
        """The definition that says the same of the same."""
        return self._known.get(self._key(definition))

    def define(self, definition: Definition) -> None:
        """Say what an op's results are."""
        for value in definition.results:
            self.definitions.setdefault(value, definition)
        key = self._key(definition)
        same = self._known.setdefault(key, definition)
        for operand in dict.fromkeys(map(self.of, definition.operands)):
            self._read_by[operand].append(definition)
        if same is not definition:
            self.unite(zip(same.results, definition.results, strict=True))

    def unite(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Say that values are equal, and all that follows from it."""
        waiting = list(pairs)
        while waiting:
            one, other = (self.of(value) for value in waiting.pop())
            if one == other:
                continue
            if len(self._read_by[one]) < len(self._read_by[other]):
                one, other = other, one
            self._parents[other] = one
            readers, self._read_by[other] = self._read_by[other], []
            for reader in readers:
                same = self._known.setdefault(self._key(reader), reader)
                if same is not reader:
                    waiting += zip(same.results, reader.results, strict=True)
            self._read_by[one] += readers

    def _key(self, definition: Definition) -> tuple[str, tuple[int, ...]]:
        own = definition.results if definition.said.startswith(ONCE) else ()
        return definition.said, (*map(self.of, definition.operands), *own)
