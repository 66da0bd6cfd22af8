"""What stands around a quantised op: a clamp before its quantisation."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.translate.rewrites.xnnpack.lower_clamp import LowerClamp, Range
from stepwell.translate.rewrites.xnnpack.quantised import is_read_once


@dataclass(frozen=True)
class Clamped:
    """A value that is clamped before anything else reads it; None is unbounded."""

    value: SSAValue
    low: float | None = None
    high: float | None = None


def clamped(value: SSAValue, program: Program) -> Clamped | Refusal:
    """What a quantised value is made from, seen through a clamp; nobody else may read either."""
    if not is_read_once(value):
        return Refusal("the value is read as floats too, or quantised in several ways")
    op = value.owner
    if not isinstance(op, LowerClamp.anchors):
        return Clamped(value)
    assert isinstance(op, SchemaOp)
    found = LowerClamp().match(op, program)
    if not isinstance(found, Range) or not is_read_once(op.operands[0]):
        return Clamped(value)
    return Clamped(op.operands[0], found.low, found.high)
