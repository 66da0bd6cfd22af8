"""Let linear layers and products of activations compute in MX.

Before:
    func.func @forward(%x: tensor<2x64xf32>) -> tensor<2x3xf32> {
      %w = stepwell.weight <"w"> "parameter" : tensor<3x64xf32>
      %y = aten.linear.default(%x, %w) : (tensor<2x64xf32>, tensor<3x64xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x64xf32>) -> tensor<2x3xf32> {
      %w = stepwell.weight <"w"> "parameter" : tensor<3x64xf32>
      %y = stepwell_mx.linear.default(%x, %w, none, "fp8e4m3", "fp8e4m3") : (tensor<2x64xf32>, tensor<3x64xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.tosa_mxfp import operators
from stepwell.ir.core import weight_key
from stepwell.ir.diagnostics import module_path
from stepwell.ir.dtypes import bf16, f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element, is_static
from stepwell.translate.rewrites.aten.building import emit_as, permute

MxLinearOp = op_class(f"{operators.NAMESPACE}.linear.default")
MxMatmulOp = op_class(f"{operators.NAMESPACE}.matmul_t.default")
MxConv2dOp = op_class(f"{operators.NAMESPACE}.conv2d.default")

ROUNDED = Bound(0.5, 1.0, "the operands are rounded to the payload: this is the point")


@dataclass(frozen=True)
class Chosen:
    """A product that becomes MX."""

    op: SchemaOp


@dataclass(frozen=True)
class ChooseMxLinear(Rewrite[Chosen]):
    """`aten.linear` to `stepwell_mx.linear`, for the layers whose names match."""

    payload: str = "fp8e4m3"
    weight_payload: str = "fp8e4m3"
    layers: tuple[str, ...] | None = None
    name: ClassVar[str] = "choose-mx-linear"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.LinearDefault,)
    bound: ClassVar[Bound] = ROUNDED

    def match(self, op: SchemaOp, program: Program) -> Chosen | Refusal | None:
        """Guards: f32 or bf16, a weight known at compile time, a name that matches."""
        path = module_path(op.location) or ""
        if self.layers is not None and not any(fnmatchcase(path, p) for p in self.layers):
            return None
        if element(op.operands[0].type) not in (f32, bf16):
            return Refusal("MX casts take f32 and bf16")
        if weight_key(op.operands[1]) is None:
            return Refusal("the weight is computed at run time")
        return Chosen(op)

    def build(self, match: Chosen, rw: Rewriter) -> None:
        """The same operands, with the payloads."""
        op, result = match.op, match.op.results[0]
        new = MxLinearOp.make(
            op.operands[0],
            op.operands[1],
            op.operand("bias"),
            self.payload,
            self.weight_payload,
            result_types=[result.type],
        )
        rw.replace(op, [emit_as(rw, new, result)])


@dataclass(frozen=True)
class ChooseMxMatmul(Rewrite[Chosen]):
    """`aten.bmm` to `stepwell_mx.matmul_t` of the transposed right side: QKᵀ and PV."""

    payload: str = "fp8e4m3"
    name: ClassVar[str] = "choose-mx-matmul"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.BmmDefault,)
    bound: ClassVar[Bound] = ROUNDED

    def match(self, op: SchemaOp, program: Program) -> Chosen | Refusal | None:
        """Guards: f32 or bf16, static shapes."""
        if element(op.operands[0].type) not in (f32, bf16):
            return Refusal("MX casts take f32 and bf16")
        if not all(is_static(value.type) for value in op.operands):
            return Refusal("the shape is symbolic")
        return Chosen(op)

    def build(self, match: Chosen, rw: Rewriter) -> None:
        """The right side transposed; for QKᵀ that undoes the transpose that is there."""
        op, result = match.op, match.op.results[0]
        right = permute(rw, op.operands[1], [0, 2, 1])
        new = MxMatmulOp.make(
            op.operands[0], right, self.payload, self.payload, result_types=[result.type]
        )
        rw.replace(op, [emit_as(rw, new, result)])
