"""Take the scale out of `elu`, and spell `selu` and `celu` by it.

`aten.elu` multiplies its result by `scale` and the exponent by `input_scale`; targets have the
plain form. `selu` is a scaled elu, `celu(x, α)` is `α · elu(x / α)`.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.elu.default(%x, 1.5, 2.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %e = aten.elu.default(%x, 1.5) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.mul.Scalar(%e, 2.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.building import emit, emit_as

SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
"""The constants of Klambauer et al., "Self-normalizing neural networks", as torch has them."""


@dataclass(frozen=True)
class ScaledElu:
    """`scale · elu(x · before, alpha)`."""

    op: SchemaOp
    before: float
    alpha: float
    scale: float


@dataclass(frozen=True)
class SplitEluScale(Rewrite[ScaledElu]):
    """`selu`, `celu` and a scaled `elu` to plain elu between multiplications."""

    name: ClassVar[str] = "split-elu-scale"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.EluDefault,
        aten.SeluDefault,
        aten.CeluDefault,
    )
    bound: ClassVar[Bound] = Bound(1e-6, 1e-6, "two factors rounded one after the other")

    def match(self, op: SchemaOp, program: Program) -> ScaledElu | Refusal | None:
        """f32, numbers known now, a scale to take out, none inside that torch leaves out outside."""
        if element(op.operands[0].type) != f32:
            return Refusal("the error bound of this rewrite holds for float32 only")
        if isinstance(op, aten.SeluDefault):
            return ScaledElu(op, 1.0, SELU_ALPHA, SELU_SCALE)
        names = [name for name in ("alpha", "scale", "input_scale") if name in op.SCHEMA.by_name]
        values = [op.arg(name) for name in names]
        if any(isinstance(value, SSAValue) for value in values):
            return Refusal("a factor is known only at run time")
        if isinstance(op, aten.CeluDefault):
            alpha = float(values[0])
            if alpha <= 0:
                return Refusal(f"alpha is {alpha}: the curve bends the other way")
            return ScaledElu(op, 1 / alpha, 1.0, alpha)
        alpha, scale, inner = (float(value) for value in values)
        if inner != 1:
            return Refusal(f"input_scale is {inner}: only the exponent is scaled, not the line")
        return None if scale == 1 else ScaledElu(op, 1.0, alpha, scale)

    def build(self, match: ScaledElu, rw: Rewriter) -> None:
        """The factor before, the plain elu, the factor behind."""
        value, result = match.op.operands[0], match.op.results[0]
        types = [result.type]
        if match.before != 1:
            value = emit(rw, aten.MulScalar.make(value, match.before, result_types=types))
        elu = aten.EluDefault.make(value, match.alpha, result_types=types)
        if match.scale != 1:
            elu = aten.MulScalar.make(emit(rw, elu), match.scale, result_types=types)
        rw.replace(match.op, [emit_as(rw, elu, result)])
