"""Analysis: state why each op that stays a float is not int8, where no lowering has stated it.

The pass changes nothing. A lowering that examined an op and did not match has its own refusal. The
remaining ops are functions of values that are not quantized, and ops for which the library has no
operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import AnyFloat, TensorType
from xdsl.ir import Operation

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.diagnostics import node_name, op_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Pass, Refusal
from stepwell.ir.types import element
from stepwell.translate.quantized.functions import is_function
from stepwell.translate.quantized.recognize import activation, quantized_uses
from stepwell.translate.rewrites.quant.movement import only_moves


@dataclass(frozen=True)
class ExplainFloats(Pass):
    """Record a refusal for each float op that has none."""

    name: ClassVar[str] = "explain-floats"

    def apply(self, program: Program, history: History) -> int:
        """Return 0: the program does not change."""
        said = {(record.op, record.node) for record in history.refusals.values()}
        for op in program.module.walk():
            if computes_floats(op) and (op_name(op), node_name(op.location)) not in said:
                history.refuse(self.name, op, reason(op))
        return 0


def computes_floats(op: Operation) -> bool:
    """Whether an op computes with reals: it reads reals and is not a data movement op."""
    if not isinstance(op, SchemaOp) or only_moves(op) or not op.name.startswith("aten."):
        return False
    return any(
        isinstance(value.type, TensorType) and isinstance(element(value.type), AnyFloat)
        for value in op.operands
    )


def reason(op: Operation) -> str:
    """Return why an op that no lowering examined is not int8."""
    if is_function(op):
        tensors = [value for value in op.operands if isinstance(value.type, TensorType)]
        found = [*map(activation, tensors), quantized_uses(op.results[0])]
        for item in found:
            if isinstance(item, Refusal):
                return item.reason
        return "it is no function of one int8 value"
    return "the library has no such operator"
