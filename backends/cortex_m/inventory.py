"""The ops of a Cortex-M program that the `cortex_m` library does not run."""

from __future__ import annotations

from collections import Counter

from stepwell.backends.executorch.kernels.kernel_calls import is_reshape
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.diagnostics import op_name
from stepwell.ir.program import Program


def outside(program: Program) -> Counter[str]:
    """Op name → count of the ops that other kernels run; views run nothing."""
    return Counter(
        op_name(op)
        for op in program.module.walk()
        if isinstance(op, SchemaOp) and not is_reshape(op)
    )
