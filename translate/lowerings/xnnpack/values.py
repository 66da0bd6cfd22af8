"""The target `xnnpack` of lowerings: values are ATen's, of floats that XNNPACK supports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.declared.numerics import FLUSHED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Refusal, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.goals import Goal, goal
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_floats


def node(b: Rewriter, cls: type[XnnpackOp], *operands: SSAValue | None, **fields: Any) -> Value:
    """Insert a node on existing values; `result` overrides its inferred result type."""
    made = cls.make(*(operand for operand in operands if operand is not None), **fields)
    return Value(b.insert(made).results[0], b)


def flushed(op: Any, program: Program) -> Deviation:
    """Return the deviation of a node that may replace denormals by zeros."""
    return FLUSHED


def _unfit(values: Sequence[SSAValue], program: Program, symbols: bool) -> Refusal | None:
    return not_floats(values)


goal("xnnpack", Goal(EXACT, lambda rw: rw, Value, lambda value: dims(value.type), _unfit))
