"""Constant folding: a quantized value that is computed from constants alone becomes its integers.

ExecuTorch's quantizer for TOSA writes a division as the product with a reciprocal. The reciprocal
would be computed from a quantized constant at run time.

rule fold-quantized-constant
    Elementwise ops that read constants alone, computed as the program would.
Before:
    %y = quant.qcast(%r) : (…) -> tensor<$*S x $Q>
After:
    %i = computed($ops, %y)
    %y = quant.scast(%i)
with $ops = ops_of_constants(%y)
for %w = weight : tensor<1 x 3 x i8>
for %t = quant.scast(%w) : (…) -> $T
for %a = quant.dcast(%t) : (…) -> tensor<1 x 3 x f32>
for %r = aten.sigmoid.default(%a)
for $S = [1, 3], $Q = "!quant.uniform<i8:f32, 0.01>"
for $T = "tensor<1x3x!quant.uniform<i8:f32, 0.5:-128>>"
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.quant import QuantizeCast
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.translate.quantized.functions import followed, is_stored
from stepwell.translate.rules import read_rules


def ops_of_constants(value: SSAValue, program: Program) -> tuple[Operation, ...] | None:
    """Return, in order, the ops that compute a quantized value from constants alone."""
    found = followed(cast(QuantizeCast, value.owner), is_stored)
    if found is None or found[1]:
        return None
    for op in found[0]:
        if isinstance(op, WeightOp):
            program.weights.get(op.key.data)
    return found[0]


def computed(rw: Rewriter, ops: Sequence[Operation], value: SSAValue) -> SSAValue:
    """Compute the integers of a value from its constants."""
    environment: dict[SSAValue, Any] = {}
    interpreter = Interpreter(rw.program.weights)
    with torch.no_grad():
        for op in (*ops, cast(Operation, value.owner)):
            interpreter.step(op, environment)
    return rw.constant(environment[value], "folded")


(FoldQuantizedConstant,) = RULES = read_rules(__doc__, globals())
