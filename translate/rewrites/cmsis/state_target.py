"""States what a program is for, and gives every kernel the scratch memory it needs there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Operation

from stepwell.dialects.cmsis.level import CMSIS_LEVEL
from stepwell.dialects.cmsis.ops import (
    QuantizedAvgPool2d,
    QuantizedAvgPool2dNhwc,
    QuantizedBatchMatmul,
    QuantizedConv2d,
    QuantizedConv2dNhwc,
    QuantizedDepthwiseConv2d,
    QuantizedDepthwiseConv2dNhwc,
    QuantizedTransposeConv2d,
    QuantizedTransposeConv2dNhwc,
)
from stepwell.dialects.cmsis.ops.base import TARGET
from stepwell.dialects.cmsis.ops.layout import nhwc_shape
from stepwell.dialects.cmsis.target import (
    Isa,
    Target,
    avgpool_scratch,
    fully_connected_scratch,
)
from stepwell.dialects.quant import DequantizeCast, QuantizeCast
from stepwell.ir.diagnostics import Problem, UnsupportedError, describe_op, op_name
from stepwell.ir.levels import set_level
from stepwell.ir.program import Program
from stepwell.ir.rewriting import History, Pass
from stepwell.ir.types import dims

CONVOLUTIONS = (
    QuantizedConv2d,
    QuantizedConv2dNhwc,
    QuantizedDepthwiseConv2d,
    QuantizedDepthwiseConv2dNhwc,
)


M55 = Target("cortex-m55", Isa.MVE)


@dataclass(frozen=True)
class StateTarget(Pass):
    """Sets the module's level and target, and every `scratch` field."""

    name: ClassVar[str] = "state-target"
    target: Target = M55
    level: str = CMSIS_LEVEL.name

    def apply(self, program: Program, history: History) -> int:
        """Returns the number of ops given scratch sizes.

        Raises:
            UnsupportedError: naming every cast between floats and integers that has no form here.
        """
        left = [op for op in program.module.walk() if isinstance(op, QuantizeCast | DequantizeCast)]
        if left:
            raise UnsupportedError([_without_form(op) for op in left])
        set_level(program.module, self.level)
        program.module.attributes[TARGET] = StringAttr(str(self.target))
        changed = 0
        for op in program.module.walk():
            for field, size in scratch_sizes(op, self.target).items():
                op.properties[field] = IntegerAttr(size, i64)
                changed += 1
        return changed


def _without_form(op: QuantizeCast | DequantizeCast) -> Problem:
    return Problem(
        f"{op_name(op)}: scales along an axis are for weights; this value is computed at run time",
        describe_op(op),
        "quantise it with one scale, or leave the operator that reads it in floats",
    )


def scratch_sizes(op: Operation, target: Target) -> dict[str, int]:
    """The scratch fields of an op and the bytes each needs on a target."""
    if isinstance(op, CONVOLUTIONS):
        needed = op.needed_scratch(target)
        return {} if needed is None else {"scratch": needed}
    if isinstance(op, (QuantizedTransposeConv2d, QuantizedTransposeConv2dNhwc)):
        both = op.needed_scratch(target)
        return {} if both is None else {"scratch": both[0], "output_scratch": both[1]}
    if isinstance(op, QuantizedBatchMatmul):
        _, columns, inner = cast("tuple[int, int, int]", dims(op.rhs_transposed.type))
        return {"scratch": fully_connected_scratch(target.isa, inner=inner, outputs=columns)}
    if isinstance(op, (QuantizedAvgPool2d, QuantizedAvgPool2dNhwc)):
        _, _, width, channels = nhwc_shape(dims(op.out.type), op.IS_NHWC)
        return {
            "scratch": avgpool_scratch(
                target.isa, output_width=cast(int, width), channels=cast(int, channels)
            )
        }
    return {}
