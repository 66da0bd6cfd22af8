"""State the program's target, and give every kernel the scratch memory that it needs there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64

from stepwell.dialects.cmsis.level import CMSIS_LEVEL
from stepwell.dialects.cmsis.ops import CmsisOp
from stepwell.dialects.cmsis.ops.base import TARGET
from stepwell.dialects.cmsis.target import Isa, Target
from stepwell.dialects.quant import DequantizeCast, QuantizeCast
from stepwell.ir.diagnostics import Problem, UnsupportedError, describe_op, op_name
from stepwell.ir.levels import set_level
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Pass

M55 = Target("cortex-m55", Isa.MVE)


@dataclass(frozen=True)
class StateTarget(Pass):
    """Set the module's level and target, and every `scratch` field."""

    name: ClassVar[str] = "state-target"
    target: Target = M55
    level: str = CMSIS_LEVEL.name

    def apply(self, program: Program, history: History) -> int:
        """Return the number of ops whose scratch size was set.

        Raises:
            UnsupportedError: lists every cast between floats and integers that the target cannot
                run.
        """
        left = [op for op in program.module.walk() if isinstance(op, QuantizeCast | DequantizeCast)]
        if left:
            raise UnsupportedError([_without_form(op) for op in left])
        set_level(program.module, self.level)
        program.module.attributes[TARGET] = StringAttr(str(self.target))
        changed = 0
        for op in program.module.walk():
            needed = op.needed_scratch(self.target) if isinstance(op, CmsisOp) else {}
            for field, size in needed.items():
                op.properties[field] = IntegerAttr(size, i64)
                changed += 1
        return changed


def _without_form(op: QuantizeCast | DequantizeCast) -> Problem:
    return Problem(
        f"{op_name(op)}: only weights may have scales along an axis; this value is computed at run time",
        describe_op(op),
        "quantize it with one scale, or leave the operator that reads it in floats",
    )
