"""What is computed of constants alone and quantised is a constant: its integers.

ExecuTorch's quantiser for TOSA writes a division as the product with a reciprocal, which it leaves
to be computed from a quantised constant at run time.

Before:
    %w = stepwell.weight <"w"> "constant" : tensor<1x3xi8>
    %t = quant.scast %w : tensor<1x3xi8> to tensor<1x3x!quant.uniform<i8:f32, 0.5:-128>>
    %a = quant.dcast %t : tensor<1x3x!quant.uniform<i8:f32, 0.5:-128>> to tensor<1x3xf32>
    %r = aten.sigmoid.default(%a) : (tensor<1x3xf32>) -> tensor<1x3xf32>
    %y = quant.qcast %r : tensor<1x3xf32> to tensor<1x3x!quant.uniform<i8:f32, 0.01>>
After:
    %y = quant.scast dense<100> : tensor<1x3xi8> to tensor<1x3x!quant.uniform<i8:f32, 0.01>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.quant import QuantizeCast, StorageCast
from stepwell.ir.core import WeightOp
from stepwell.ir.interpretation import Interpreter
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.translate.quantised.functions import followed, is_stored


@dataclass(frozen=True)
class Constant:
    """A quantisation, and the ops that make what it quantises out of constants, in order."""

    cast: QuantizeCast
    ops: tuple[Operation, ...]


@dataclass(frozen=True)
class FoldQuantisedConstant(Rewrite[Constant]):
    """q(f(dq(constants))) to a constant."""

    name: ClassVar[str] = "fold-quantised-constant"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizeCast,)

    def match(self, op: QuantizeCast, program: Program) -> Constant | Refusal | None:
        """Elementwise ops that read constants alone."""
        found = followed(op, is_stored)
        if found is None or found[1]:
            return None
        for held in found[0]:
            if isinstance(held, WeightOp):
                program.weights.get(held.key.data)
        return Constant(op, found[0])

    def build(self, match: Constant, rw: Rewriter) -> None:
        """Compute the ops as the program would."""
        environment: dict[SSAValue, Any] = {}
        interpreter = Interpreter(rw.program.weights)
        with torch.no_grad():
            for op in (*match.ops, match.cast):
                interpreter.step(op, environment)
        made = rw.constant(environment[match.cast.result], "folded")
        rw.replace(match.cast, rw.insert(StorageCast(made, match.cast.result.type)).results)
