"""The text of an op without the names of values.

Two ops with equal texts compute the same function of their operands, unless the text begins with
`ONCE`: such an op draws random numbers or has a side effect.
"""

from collections.abc import Collection
from itertools import count

from xdsl.ir import Block, Operation

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.side_effects import is_pure
from stepwell.ir.syntax.text import to_text

ONCE = "each time anew: "
"""The prefix of the texts of ops whose equal instances have different values."""
_OFF = {"dropout_p": 0.0, "dropout": 0.0, "p": 0.0, "train": False, "training": False}
"""The arguments of operators whose only randomness is dropout, where it is disabled."""
_COUNTER = count()


def is_repeatable(op: Operation) -> bool:
    """Whether an op is deterministic: no op in it is random or has a side effect."""
    calls = (each for each in op.walk() if isinstance(each, SchemaOp))
    return all(is_pure(each) or _drops_nothing(each) for each in calls)


def _drops_nothing(op: SchemaOp) -> bool:
    is_off = any(op.arg(n) == value for n, value in _OFF.items() if n in op.SCHEMA.by_name)
    return is_off and bool(op.results) and not op.SCHEMA.is_mutable


def text_of(op: Operation, unread: Collection[str] = ()) -> str:
    """Return the text of an op: its name, properties, attributes, types and regions.

    Args:
        op: the op.
        unread: properties that are left out.
    """
    around = Block(arg_types=[operand.type for operand in op.operands])
    copy = op.clone(dict(zip(op.operands, around.args, strict=True)))
    around.add_op(copy)
    for name in unread:
        copy.properties.pop(name, None)
    blocks = [block for inner in copy.walk() for region in inner.regions for block in region.blocks]
    made = [value for inner in copy.walk() for value in inner.results]
    made += [argument for block in blocks for argument in block.args]
    for value in made:
        value.name_hint = None
    within = {*made, *around.args}
    begin = "" if is_repeatable(op) else ONCE
    if any(operand not in within for inner in copy.walk() for operand in inner.operands):
        begin += f"of values around it, {next(_COUNTER)}: "  # It is equal to no other value.
    return f"{begin}{op.name} {to_text(copy)}"
