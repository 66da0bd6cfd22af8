"""The `aten` level: programs in PyTorch's operators."""

from __future__ import annotations

from xdsl.ir import Operation

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.levels import Level, register_level

_NEIGHBORS = ("sym.", "control.", "quant.")
"""Dialects whose ops may be next to torch's operators: scalars, control flow, quantized types."""


def _refuses(op: Operation) -> str | None:
    """Return why an op is not allowed at the aten level, or None."""
    if isinstance(op, SchemaOp) or op.name.startswith(_NEIGHBORS):
        return None
    return "it is not an operator of torch, a run-time scalar or control flow"


ATEN_LEVEL = register_level(Level("aten", _refuses))
"""The level after import: torch's operators in SSA form, not decomposed."""
