"""xDSL's private names, but those of the parser and printer that `ir/syntax/parser.py` and
`ir/syntax/printer.py` extend (`EXTENDED`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, cast

from xdsl.dialects.builtin import UNKNOWN_LOC
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue, Use
from xdsl.ir.core import SSAValues
from xdsl.irdl import IRDLOperation

from stepwell.ir.compat.private_names import PrivateName

EXTENDED: tuple[PrivateName, ...] = tuple(
    PrivateName(f"xdsl.parser:{name}", serves)
    for name, serves in (
        ("AttrParser._TensorLiteralElement", "numbers in dense<…>"),
        ("AttrParser._parse_optional_builtin_type", "types of symbolic sizes"),
        ("AttrParser._parse_optional_integer_or_float_type", "element types that MLIR has not"),
        ("AttrParser._parse_optional_shape_delimiter", "types of symbolic sizes"),
        ("AttrParser._parse_dense_literal_type", "dense<…> of other elements"),
    )
)
"""What the reader of texts overrides."""


_Op = TypeVar("_Op", bound=Operation)

operands_of = cast("Callable[[Operation], tuple[SSAValue, ...]]", attrgetter("_operands"))
"""An op's operands as the tuple they are kept in: `op.operands` makes a view of it each time."""


def ops_in(block: Block) -> list[Operation]:
    """The ops of a block, as they stand now."""
    ops: list[Operation] = []
    op = block._first_op  # pyright: ignore[reportPrivateUsage]
    while op is not None:
        ops.append(op)
        op = op._next_op  # pyright: ignore[reportPrivateUsage]
    return ops


def ops_below(root: Operation, into: list[Operation]) -> list[Operation]:
    """`into`, with every op below `root` behind, each before those that follow it in its block."""
    add = into.append
    for region in root.regions:
        for block in region.blocks:
            op = block._first_op  # pyright: ignore[reportPrivateUsage]
            while op is not None:
                add(op)
                if op.regions:
                    ops_below(op, into)
                op = op._next_op  # pyright: ignore[reportPrivateUsage]
    return into


def create(
    cls: type[_Op],
    operands: Sequence[SSAValue],
    types: Sequence[Attribute],
    properties: dict[str, Attribute],
) -> _Op:
    """What `cls.create` makes of an op without regions and successors, in a third of the time."""
    if _has_defaults(cls):
        return cls.create(operands=operands, result_types=types, properties=properties)
    op = cls.__new__(cls)
    begin(op, operands, types, properties)
    return op


def begin(
    op: Operation,
    operands: Sequence[SSAValue],
    types: Sequence[Attribute],
    properties: dict[str, Attribute],
) -> None:
    """What `Operation.__init__` does for an op without regions and successors."""
    uses = tuple([Use(op, index) for index in range(len(operands))])
    for operand, use in zip(operands, uses, strict=True):
        operand.add_use(use)
    op._operands = SSAValues(operands)  # pyright: ignore[reportPrivateUsage]
    op._operand_uses = uses  # pyright: ignore[reportPrivateUsage]
    op.properties = properties
    op.attributes = {}
    op.location = UNKNOWN_LOC
    state_results(op, types)


@cache
def _has_defaults(cls: type[Operation]) -> bool:
    """Whether xDSL has something to add to what it is given."""
    if not issubclass(cls, IRDLOperation):
        return True
    definition = cls.get_irdl_definition()
    stated = (*definition.properties.values(), *definition.attributes.values())
    return any(getattr(one, "default_value", None) is not None for one in stated)


def state_results(op: Operation, types: Sequence[Attribute]) -> None:
    """Give an op that has no results those of these types."""
    op.results = SSAValues([OpResult(type_, op, index) for index, type_ in enumerate(types)])


def put_before(op: Operation, anchor: Operation) -> None:
    """Put an op that stands nowhere before another.

    xDSL also looks whether the anchor is in the op, which takes longer than the rest.
    """
    block = anchor.parent
    assert block is not None, "the anchor is not in a block"
    if op.parent is not None or op.regions:
        block.insert_op_before(op, anchor)
        return
    op.parent = block
    before = anchor._prev_op  # pyright: ignore[reportPrivateUsage]
    op._prev_op, op._next_op = before, anchor  # pyright: ignore[reportPrivateUsage]
    anchor._prev_op = op  # pyright: ignore[reportPrivateUsage]
    if before is None:
        block._first_op = op  # pyright: ignore[reportPrivateUsage]
    else:
        before._next_op = op  # pyright: ignore[reportPrivateUsage]


def discard(op: Operation) -> None:
    """Take an op that nothing reads out of its block, for ever.

    Raises:
        ValueError: something reads it.
    """
    op.detach()
    for result in op.results:
        if result.first_use is not None:
            op.erase()
    op.drop_all_references()


def replace_uses(old: SSAValue, new: SSAValue) -> None:
    """Let all that reads `old` read `new`, as `replace_all_uses_with` does."""
    if new is old:
        return
    use = old.first_use
    old.first_use = None
    while use is not None:
        following = use._next_use  # pyright: ignore[reportPrivateUsage]
        reader = use._operation  # pyright: ignore[reportPrivateUsage]
        operands = list(operands_of(reader))
        operands[use._index] = new  # pyright: ignore[reportPrivateUsage]
        reader._operands = SSAValues(operands)  # pyright: ignore[reportPrivateUsage]
        new.add_use(use)
        use = following
    if new._name is None:  # pyright: ignore[reportPrivateUsage]
        new._name = old._name  # pyright: ignore[reportPrivateUsage]


def set_type(value: SSAValue[Any], type_: Attribute) -> None:
    """Give a value another type in place: xDSL's own way makes a new value, and loses its uses."""
    value._type = type_  # pyright: ignore[reportPrivateUsage]


def current_text(parser: Any) -> str:
    """The token in front of a parser."""
    return parser._current_token.text
