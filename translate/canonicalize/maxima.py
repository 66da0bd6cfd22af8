"""The condition under which a rewrite may replace a maximum pool by an op without indices."""

from __future__ import annotations

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.rewriting.rewrite import Refusal


def reads_their_indices(op: SchemaOp) -> Refusal | None:
    """The second result is used: the index of each maximum."""
    if any(indices.uses for indices in op.results[1:]):
        return Refusal("the indices of the maxima are used")
    return None
