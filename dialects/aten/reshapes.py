"""Ops that reshape a tensor or return its elements unchanged."""

from __future__ import annotations

import math
from typing import TypeGuard, cast

from xdsl.ir import Block, Operation

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.families import is_of
from stepwell.ir.types import dims, element, is_static


def only_reshapes(op: Operation | Block) -> TypeGuard[SchemaOp]:
    """Whether a result has the first operand's elements in the same row-major order.

    An op that may repeat or convert elements does neither if the number and the type of elements
    stay the same.
    """
    if not isinstance(op, SchemaOp):
        return False
    return is_of(op, "reshape") or (is_of(op, "repetition", "cast") and _moves_nothing(op))


def _moves_nothing(op: SchemaOp) -> bool:
    source, result = op.operands[0].type, op.results[0].type
    if not is_static(source) or not is_static(result) or element(source) != element(result):
        return False
    counts = {math.prod(cast(tuple[int, ...], dims(type_))) for type_ in (source, result)}
    return len(counts) == 1
