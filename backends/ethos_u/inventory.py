"""The contents of an Ethos-U program: delegates, and the ops that the CPU runs."""

from __future__ import annotations

from collections import Counter

from stepwell.backends.executorch.kernels.kernel_calls import is_reshape
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.cmsis.ops import CmsisOp
from stepwell.dialects.cmsis.ops.places import is_view
from stepwell.dialects.ethosu import DelegateOp
from stepwell.ir.diagnostics import op_name
from stepwell.ir.program import Program


def inventory(program: Program) -> tuple[int, Counter[str]]:
    """(number of delegates, op name → count of the ops outside them); views run nothing."""
    ops = [op for func in program.methods.values() for op in func.body.block.ops]
    delegates = sum(isinstance(op, DelegateOp) for op in ops)
    outside = Counter(
        op_name(op)
        for op in ops
        if (isinstance(op, SchemaOp) and not is_reshape(op))
        or (isinstance(op, CmsisOp) and not is_view(op))
    )
    return delegates, outside
