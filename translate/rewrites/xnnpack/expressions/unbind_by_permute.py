"""Take a short last axis apart, and put it together, at the front, where each part is one piece.

Rotary embeddings of neighbouring pairs unbind an axis of two behind all others and stack one there
again. XNNPACK slices and concatenates there element by element; a transposition to the front and
slices of the first axis move whole blocks. (128 tokens of 8 heads of 64: a fifth of a layer.)

Before:
    %a, %b = aten.unbind.int(%x, -1) : (tensor<3x4x2xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>)
    %n = aten.neg.default(%b) : (tensor<3x4xf32>) -> tensor<3x4xf32>
    %y = aten.stack.default([%n, %a], -1) : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4x2xf32>
After:
    %0 = aten.permute.default(%x, [2, 0, 1]) : (tensor<3x4x2xf32>) -> tensor<2x3x4xf32>
    %a, %b = aten.unbind.int(%0) : (tensor<2x3x4xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>)
    %n = aten.neg.default(%b) : (tensor<3x4xf32>) -> tensor<3x4xf32>
    %1 = aten.stack.default([%n, %a]) : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<2x3x4xf32>
    %y = aten.permute.default(%1, [1, 2, 0]) : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack.datatypes import MAX_RANK
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.building import axis, permute
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_floats

SHORT = 4
"""Parts of an axis up to which moving all of it is sure to cost less than element by element."""


@dataclass(frozen=True)
class UnbindByPermute(Rewrite[SchemaOp]):
    """`unbind` and `stack` of a short last axis to those of the first one and a permute."""

    name: ClassVar[str] = "unbind-by-permute"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.UnbindInt, aten.StackDefault)

    def match(self, op: SchemaOp, program: Program) -> SchemaOp | Refusal | None:
        """Guards: floats of a rank XNNPACK holds, a short last axis, of which each part is used."""
        whole = op.operands[0] if isinstance(op, aten.UnbindInt) else op.results[0]
        shape = dims(whole.type)
        if len(shape) < 2 or axis(op.arg("dim"), len(shape)) != len(shape) - 1:
            return None
        last = shape[-1]
        if not isinstance(last, int) or not 2 <= last <= SHORT or len(shape) >= MAX_RANK:
            return None
        if isinstance(op, aten.UnbindInt) and any(not result.uses for result in op.results):
            return None
        return not_floats((whole,)) or op

    def build(self, match: SchemaOp, rw: Rewriter) -> None:
        """The permute in front of an unbind, or behind a stack."""
        op = match
        if isinstance(op, aten.UnbindInt):
            rank = len(dims(op.operands[0].type))
            turned = permute(rw, op.operands[0], [rank - 1, *range(rank - 1)])
            types = [result.type for result in op.results]
            made = rw.insert(aten.UnbindInt.make(turned, result_types=types))
            rw.replace(op, list(made.results))
            return
        *before, last = dims(op.results[0].type)
        front = tensor([last, *before], element(op.results[0].type))
        made = rw.insert(aten.StackDefault.make(list(op.operands), result_types=[front]))
        rw.replace(op, [permute(rw, made.results[0], [*range(1, len(before) + 1), 0])])
