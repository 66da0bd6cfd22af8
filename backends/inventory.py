"""What a lowered program consists of: delegates, and the ops that stand outside them."""

from __future__ import annotations

from collections import Counter

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block
from xdsl.traits import IsTerminator

from stepwell.dialects.xnnpack import DelegateOp
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import op_name
from stepwell.ir.program import Program


def inventory(program: Program) -> tuple[int, Counter[str]]:
    """(number of delegates, op name → count of the ops outside them), over all methods."""
    delegates = 0
    outside: Counter[str] = Counter()

    def look(block: Block) -> None:
        nonlocal delegates
        for op in block.ops:
            if isinstance(op, DelegateOp):
                delegates += 1
                continue
            for region in op.regions:
                for inner in region.blocks:
                    look(inner)
            if op.has_trait(IsTerminator):
                continue
            if not isinstance(op, WeightOp | StateOp | UpdateOp | MutateInputOp | FuncOp):
                outside[op_name(op)] += 1

    for func in program.methods.values():
        for block in func.body.blocks:
            look(block)
    return delegates, outside
