"""xDSL's private names, except those of the parser and printer that `ir/syntax/parser.py` and
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
        ("AttrParser._parse_optional_integer_or_float_type", "element types unknown to MLIR"),
        ("AttrParser._parse_optional_shape_delimiter", "types of symbolic sizes"),
        ("AttrParser._parse_dense_literal_type", "dense<…> of other elements"),
    )
)
"""The methods that the parser of texts overrides."""


_Op = TypeVar("_Op", bound=Operation)

operands_of = cast("Callable[[Operation], tuple[SSAValue, ...]]", attrgetter("_operands"))
"""Return an op's operands as the stored tuple; `op.operands` creates a view on each access."""


def ops_in(block: Block) -> list[Operation]:
    """List the ops of a block; the list does not change with the block."""
    ops: list[Operation] = []
    op = block._first_op  # pyright: ignore[reportPrivateUsage]
    while op is not None:
        ops.append(op)
        op = op._next_op  # pyright: ignore[reportPrivateUsage]
    return ops


def ops_below(root: Operation, into: list[Operation]) -> list[Operation]:
    """Append every op below `root` to `into`, each before those that follow it, and
    return `into`.
    """
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
    """Create an op without regions and successors like `cls.create`, in a third of the time."""
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
    """Initialize an op without regions and successors like `Operation.__init__`."""
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
    """Whether xDSL adds default properties to those that are passed."""
    if not issubclass(cls, IRDLOperation):
        return True
    definition = cls.get_irdl_definition()
    stated = (*definition.properties.values(), *definition.attributes.values())
    return any(getattr(one, "default_value", None) is not None for one in stated)


def state_results(op: Operation, types: Sequence[Attribute]) -> None:
    """Give results of these types to an op that has none yet."""
    op.results = SSAValues([OpResult(type_, op, index) for index, type_ in enumerate(types)])


def put_before(op: Operation, anchor: Operation) -> None:
    """Insert a detached op before another, the anchor.

    xDSL's own check whether the anchor is inside the op is omitted: it takes longer than the rest.
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
    """Remove an op without uses from its block for good.

    Raises:
        ValueError: the op has uses.
    """
    op.detach()
    for result in op.results:
        if result.first_use is not None:
            op.erase()
    op.drop_all_references()


def replace_uses(old: SSAValue, new: SSAValue) -> None:
    """Replace all uses of `old` by `new`, as `replace_all_uses_with` does."""
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
    """Change a value's type in place; xDSL's own method creates a new value and loses its uses."""
    value._type = type_  # pyright: ignore[reportPrivateUsage]


def current_text(parser: Any) -> str:
    """Return the text of a parser's current token."""
    return parser._current_token.text
