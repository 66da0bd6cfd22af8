"""Which ops give the elements of a tensor another shape, or hand them on as they are."""

from __future__ import annotations

import math
from typing import cast

from xdsl.ir import Block, Operation

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.types import dims, element, is_static

_ALWAYS = frozenset(
    f"aten.{name}"
    for name in (
        "view.default _unsafe_view.default reshape.default unsqueeze.default squeeze.default "
        "squeeze.dim squeeze.dims flatten.using_ints unflatten.int alias.default detach.default "
        "lift_fresh.default clone.default contiguous.default view_copy.default "
        "unsqueeze_copy.default squeeze_copy.default squeeze_copy.dim squeeze_copy.dims "
        "alias_copy.default detach_copy.default lift_fresh_copy.default view_as.default "
        "reshape_as.default"
    ).split()
)
_OF_SAME_TYPE = frozenset(
    f"aten.{name}.default" for name in ("expand", "expand_copy", "expand_as", "_to_copy")
)
"""Ops that may repeat or convert elements: not where there are as many, of the same type."""


def only_reshapes(op: Operation | Block) -> bool:
    """Whether a result is the first operand's elements in the same row-major order."""
    if not isinstance(op, SchemaOp):
        return False
    if op.name == "aten.dropout.default":
        return op.arg("train") is False
    return op.name in _ALWAYS or (op.name in _OF_SAME_TYPE and _moves_nothing(op))


def _moves_nothing(op: SchemaOp) -> bool:
    source, result = op.operands[0].type, op.results[0].type
    if not is_static(source) or not is_static(result) or element(source) != element(result):
        return False
    counts = {math.prod(cast(tuple[int, ...], dims(type_))) for type_ in (source, result)}
    return len(counts) == 1
