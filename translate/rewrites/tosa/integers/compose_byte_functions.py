"""Functions of one int8 value that follow each other are one TABLE.

A TABLE, a RESCALE between integers of 8 bits and a CLAMP are such functions.  The division, the
epsilon and the root of a layer norm that is quantised op by op become one TABLE.

Before:
    %s = stepwell.weight <"s"> "constant" : tensor<256xi8>
    %t = stepwell.weight <"t"> "constant" : tensor<256xi8>
    %a = tosa.table %x, %s : (tensor<4xi8>, tensor<256xi8>) -> tensor<4xi8>
    %y = tosa.table %a, %t : (tensor<4xi8>, tensor<256xi8>) -> tensor<4xi8>
After:
    %0 = stepwell.weight <"constant#7d06bebca859"> "constant" : tensor<256xi8>
    %y = tosa.table %x, %0 : (tensor<4xi8>, tensor<256xi8>) -> tensor<4xi8>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.core import WeightOp
from stepwell.ir.dtypes import i8
from stepwell.ir.interpretation import Interpreter
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of

FUNCTIONS: tuple[type[TosaOp], ...] = (t.TableOp, t.RescaleOp, t.ClampOp)


@dataclass(frozen=True)
class Composed:
    """Two functions of one int8 value, one behind the other."""

    inner: TosaOp
    outer: TosaOp


@dataclass(frozen=True)
class ComposeByteFunctions(Rewrite[Composed]):
    """f(g(x)) to one TABLE."""

    name: ClassVar[str] = "compose-byte-functions"
    anchors: ClassVar[tuple[type[Operation], ...]] = FUNCTIONS

    def match(self, op: TosaOp, program: Program) -> Composed | Refusal | None:
        """Both take and give int8 by constants."""
        inner = op.operands[0].owner
        if not isinstance(inner, FUNCTIONS) or not is_byte_function(inner):
            return None
        if not is_byte_function(op):
            return None
        for value in (*inner.operands[1:], *op.operands[1:]):
            assert isinstance(value.owner, WeightOp)
            program.weights.get(value.owner.key.data)
        return Composed(inner, op)

    def build(self, match: Composed, rw: Rewriter) -> None:
        """Both evaluated on all 256 values."""
        b, x = Builder(rw), match.inner.operands[0]
        environment: dict[SSAValue, Any] = {x: torch.arange(-128, 128).to(torch.int8)}
        interpreter = Interpreter(rw.program.weights)
        for op in (match.inner, match.outer):
            for value in op.operands[1:]:
                assert isinstance(value.owner, WeightOp)
                interpreter.step(value.owner, environment)
            interpreter.step(op, environment)
        entries = b.constant(environment[match.outer.results[0]])
        rw.replace(match.outer, [b.op(t.TableOp, [x, entries], shape_of(x), i8)])


def is_byte_function(op: TosaOp) -> bool:
    """Whether an operator takes int8 to int8 by constants, each element by itself."""
    data = (op.operands[0], op.results[0])
    if any(element(value.type) != i8 for value in data):
        return False
    if isinstance(op, t.RescaleOp) and op.per_channel.value.data:
        return False
    return all(isinstance(value.owner, WeightOp) for value in op.operands[1:])
