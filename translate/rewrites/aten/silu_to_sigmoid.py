"""Spell gated activations by their gate: `silu(x)` is x·σ(x), `glu` is a·σ(b).

Before:
    func.func @forward(%x: tensor<2x4xf32>) -> tensor<2x2xf32> {
      %a = aten.silu.default(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
      %y = aten.glu.default(%a) : (tensor<2x4xf32>) -> tensor<2x2xf32>
      func.return %y : tensor<2x2xf32>
    }
After:
    func.func @forward(%x: tensor<2x4xf32>) -> tensor<2x2xf32> {
      %0 = aten.sigmoid.default(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
      %a = aten.mul.Tensor(%x, %0) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
      %1 = aten.slice.Tensor(%a, 1, 2, 4, 1) : (tensor<2x4xf32>) -> tensor<2x2xf32>
      %2 = aten.slice.Tensor(%a, 1, 0, 2, 1) : (tensor<2x4xf32>) -> tensor<2x2xf32>
      %3 = aten.sigmoid.default(%1) : (tensor<2x2xf32>) -> tensor<2x2xf32>
      %y = aten.mul.Tensor(%2, %3) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      func.return %y : tensor<2x2xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites.aten.building import axis, emit, emit_as, slice_axis


@dataclass(frozen=True)
class Gated:
    """`value * sigmoid(gate)`; if `cut` is set, the two are the halves of that axis."""

    op: SchemaOp
    cut: tuple[int, int] | None


@dataclass(frozen=True)
class SiluToSigmoid(Rewrite[Gated]):
    """`silu(x)` to `x * sigmoid(x)`, `glu(x)` to the product of its halves, one through sigmoid."""

    name: ClassVar[str] = "silu-to-sigmoid"
    bound: ClassVar[Bound] = Bound(1e-6, 1e-7, "x·(1/(1+e⁻ˣ)) rounds once more than x/(1+e⁻ˣ)")
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.SiluDefault, aten.GluDefault)

    def match(self, op: SchemaOp, program: Program) -> Gated | Refusal | None:
        """A glu needs the length of the axis it halves."""
        if isinstance(op, aten.SiluDefault):
            return Gated(op, None)
        held = dims(op.operands[0].type)
        at = axis(op.arg("dim"), len(held))
        length = held[at]
        if not isinstance(length, int):
            return Refusal("the halved axis is symbolic")
        return Gated(op, (at, length // 2))

    def build(self, match: Gated, rw: Rewriter) -> None:
        """Write the gate and the product."""
        result, value = match.op.results[0], match.op.operands[0]
        gate = value
        if match.cut is not None:
            at, half = match.cut
            gate = slice_axis(rw, value, at, half, 2 * half)
            value = slice_axis(rw, value, at, 0, half)
        opened = emit(rw, aten.SigmoidDefault.make(gate, result_types=[result.type]))
        new = aten.MulTensor.make(value, opened, result_types=[result.type])
        rw.replace(match.op, [emit_as(rw, new, result)])
