"""Fusion: consecutive functions of one int8 value become one TABLE.

TABLE, CLAMP and a RESCALE between 8-bit integers are such functions. The division, the
epsilon and the root of a layer norm that is quantized op by op become one TABLE.

rule compose-byte-functions
    f(g(x)) to one TABLE.
Before:
    %a = $inner of FUNCTIONS(%x, …)
    %y = $outer of FUNCTIONS(%a, …)
After:
    %y = tabulated(%x, %a, %y)
where are_byte_functions(%a, %y)
for %s = weight : tensor<256 x i8>
for $inner = "tosa.table", $outer = "tosa.table", %x = "tensor<4xi8>", %table = %s
not for %table = "tensor<256xi8>"
"""

from __future__ import annotations

from typing import Any, cast

from xdsl.ir import SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.dtypes import i8
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of
from stepwell.translate.rules import read_rules

FUNCTIONS: tuple[type[TosaOp], ...] = (t.TableOp, t.RescaleOp, t.ClampOp)


def tabulated(rw: Rewriter, x: SSAValue, inner: SSAValue, outer: SSAValue) -> SSAValue:
    """Evaluate the composition of both functions on all 256 values."""
    b = Builder(rw)
    environment: dict[SSAValue, Any] = {x: torch.arange(-128, 128).to(torch.int8)}
    interpreter = Interpreter(rw.program.weights)
    for op in (cast(TosaOp, inner.owner), cast(TosaOp, outer.owner)):
        for value in op.operands[1:]:
            assert isinstance(value.owner, WeightOp)
            interpreter.step(value.owner, environment)
        interpreter.step(op, environment)
    return b.op(t.TableOp, [x, b.constant(environment[outer])], shape_of(x), i8)


def are_byte_functions(inner: SSAValue, outer: SSAValue, program: Program) -> bool:
    """Whether the operators compute functions of int8 and constants, element by element."""
    return all(_is_byte_function(value, program) for value in (inner, outer))


def _is_byte_function(value: SSAValue, program: Program) -> bool:
    op = cast(TosaOp, value.owner)
    data = (op.operands[0], op.results[0])
    if any(element(value.type) != i8 for value in data):
        return False
    if isinstance(op, t.RescaleOp) and op.per_channel.value.data:
        return False
    weights = [value.owner for value in op.operands[1:]]
    if not all(isinstance(weight, WeightOp) for weight in weights):
        return False
    for weight in cast("list[WeightOp]", weights):
        program.weights.get(weight.key.data)
    return True


(ComposeByteFunctions,) = RULES = read_rules(__doc__, globals())
