"""Store definitions of values, and which values are equal, closed under congruence.

A value has a number. An op defines its results by its name, its attributes and the classes of its
operands. Two definitions with the same attributes and operand classes have the same values, so one
equality implies those of all values computed from the two sides. A random op has new values each
time.

Sources: Nelson and Oppen, Fast decision procedures based on congruence closure, JACM 1980; Willsey
et al., egg, POPL 2021 (rebuilding).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.side_effects import is_pure
from stepwell.ir.syntax.text import to_text


@dataclass(frozen=True, eq=False)
class Definition:
    """The record of an op of the program, with the numbers of its values at that time.

    Attributes:
        op: an op of the recorded class, whose operands may have changed since.
        operands, results: the numbers of its values.
        said: the op's other attributes, as text.
        regions: the op's regions when it was recorded.
    """

    op: Operation
    properties: dict[str, Attribute]
    attributes: dict[str, Attribute]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    said: str
    regions: tuple[Region, ...] = ()


ONCE = "each time anew: "
"""The prefix of the attributes of ops whose equal instances have different values."""


def is_repeatable(op: Operation) -> bool:
    """Whether an op is deterministic: no op in it is random or has a side effect."""
    calls = (each for each in op.walk() if isinstance(each, SchemaOp))
    return all(is_pure(each) or _drops_nothing(each) for each in calls)


def _drops_nothing(op: SchemaOp) -> bool:
    """Whether an operator's only randomness is dropout, and the dropout is disabled."""
    options = op.SCHEMA.by_name
    is_off = any(op.arg(n) == 0.0 for n in ("dropout_p", "dropout", "p") if n in options)
    is_off |= any(op.arg(n) is False for n in ("train", "training") if n in options)
    return is_off and bool(op.results) and not op.SCHEMA.is_mutable


def text_of(op: Operation, unread: Collection[str] = ()) -> str:
    """Return the text of an op without its operands: name, attributes, types, and regions without
    value names.

    Args:
        op: the op.
        unread: properties that are left out.
    """
    fields = [f"{n}={held}" for n, held in sorted(op.properties.items()) if n not in unread]
    fields += [f"{name}={held}" for name, held in sorted(op.attributes.items())]
    types = [str(result.type) for result in op.results]
    begin = "" if is_repeatable(op) else ONCE
    return f"{begin}{op.name} {fields} {types} {_inside(op) if op.regions else ''}"


def _inside(op: Operation) -> str:
    """Return the text of an op with regions, with canonical value names."""
    around = Block(arg_types=[operand.type for operand in op.operands])
    copy = op.clone(dict(zip(op.operands, around.args, strict=True)))
    around.add_op(copy)
    within = {value for inner in copy.walk() for value in _made_in(inner)} | set(around.args)
    for inner in copy.walk():
        for value in _made_in(inner):
            value.name_hint = None
        if any(operand not in within for operand in inner.operands):
            return f"of values around it, {next(_COUNTER)}"  # It is equal to no other value.
    return to_text(copy)


_COUNTER = count()


def _made_in(op: Operation) -> list[SSAValue]:
    arguments = [a for region in op.regions for block in region.blocks for a in block.args]
    return [*op.results, *arguments]


@dataclass
class EqualityGraph:
    """A graph of values with their definitions and with classes of values that are known to be
    equal.
    """

    definitions: dict[int, Definition] = field(default_factory=dict[int, Definition])
    """Definitions by the number of each value."""
    _parents: list[int] = field(default_factory=list[int])
    _read_by: list[list[Definition]] = field(default_factory=list[list[Definition]])
    _known: dict[tuple[str, tuple[int, ...]], Definition] = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]

    def new(self) -> int:
        """Create a value in the graph of known equalities, and return its number."""
        self._parents.append(len(self._parents))
        self._read_by.append([])
        return len(self._parents) - 1

    def of(self, value: int) -> int:
        """Return the class of values that are known to equal a value."""
        root = value
        while self._parents[root] != root:
            root = self._parents[root]
        while self._parents[value] != root:
            self._parents[value], value = root, self._parents[value]
        return root

    def are_equal(self, one: Sequence[int], other: Sequence[int]) -> bool:
        """Whether two lists of values are known to be equal, pair by pair."""
        return [self.of(v) for v in one] == [self.of(v) for v in other]

    def find(self, definition: Definition) -> Definition | None:
        """Return the recorded definition with the same attributes and operand classes, or None."""
        return self._known.get(self._key(definition))

    def define(self, definition: Definition) -> None:
        """Add the definition of an op's results."""
        for value in definition.results:
            self.definitions.setdefault(value, definition)
        key = self._key(definition)
        same = self._known.setdefault(key, definition)
        for operand in dict.fromkeys(map(self.of, definition.operands)):
            self._read_by[operand].append(definition)
        if same is not definition:
            self.unite(zip(same.results, definition.results, strict=True))

    def unite(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Merge the classes of equal values, and restore congruence."""
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
