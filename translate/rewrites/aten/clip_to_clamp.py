"""Spell every clipping of a range as `aten.clamp.default`.

`relu` is a clamp from 0, `relu6` and `hardtanh` are clamps of both sides; `clamp_min` and
`clamp_max` of one. With tensors as bounds, a clamp is `maximum` then `minimum`.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %a = aten.relu.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %b = aten.hardtanh.default(%a, 0.0, 6.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.clamp_max.default(%b, 5) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %a = aten.clamp.default(%x, 0, none) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %b = aten.clamp.default(%a, 0.0, 6.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.clamp.default(%b, none, 5) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.building import promotes, same_type
from stepwell.translate.rewrites.aten.respelling import Respell, Respelled

Number = int | float | SSAValue | None


@dataclass(frozen=True)
class ClipToClamp(Respell):
    """`relu`, `relu6`, `hardtanh`, `clamp_min`, `clamp_max` to `aten.clamp`."""

    name: ClassVar[str] = "clip-to-clamp"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.ReluDefault,
        aten.Relu6Default,
        aten.HardtanhDefault,
        aten.ClampMinDefault,
        aten.ClampMaxDefault,
        aten.ClipDefault,
        aten.ThresholdDefault,
        aten.ClampMinTensor,
        aten.ClampMaxTensor,
    )

    def match(self, op: SchemaOp, program: Program) -> Respelled | Refusal | None:
        """The dtype stays; a threshold must be that of relu."""
        value = op.operands[0]
        if isinstance(op, aten.ClampMinTensor | aten.ClampMaxTensor):
            form = (
                aten.MaximumDefault if isinstance(op, aten.ClampMinTensor) else aten.MinimumDefault
            )
            return Respelled(op, form, {"self": value, "other": op.operands[1]})
        if not same_type(value, op.results[0]):
            return Refusal("a bound promotes the tensor to another dtype")
        if isinstance(op, aten.ThresholdDefault) and (op.arg("threshold"), op.arg("value")) != (
            0,
            0,
        ):
            return Refusal("a threshold other than 0 jumps")
        low, high = limits(op)
        for bound in (low, high):
            if refusal := promotes(bound, element(value.type)):
                return refusal
        return Respelled(op, aten.ClampDefault, {"self": value, "min": low, "max": high})


def limits(op: SchemaOp) -> tuple[Number, Number]:
    """The lower and the upper bound, None where there is none."""
    names = op.SCHEMA.by_name
    if "min_val" in names:
        return op.arg("min_val"), op.arg("max_val")
    if "min" in names or "max" in names:
        low = op.arg("min") if "min" in names else None
        return low, op.arg("max") if "max" in names else None
    return 0, 6 if isinstance(op, aten.Relu6Default) else None
