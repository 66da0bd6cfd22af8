"""What every rewrite of maximum pools asks before it gives values alone."""

from __future__ import annotations

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.rewriting.rewrite import Refusal


def reads_their_indices(op: SchemaOp) -> Refusal | None:
    """Whether the results behind the first one are read: which element each maximum was."""
    if any(indices.uses for indices in op.results[1:]):
        return Refusal("the indices of the maxima are used")
    return None
