"""Spell `softplus`, `mish` and `log_sigmoid` by exp and log, without overflow.

    softplus(x) = max(x, 0) + log(1 + exp(−|x|))

The exponent is never positive, so nothing overflows and torch's threshold is not needed: beyond
it the logarithm is below half an ulp of x. `mish(x)` is x·tanh(softplus(x)), `log_sigmoid(x)` is
−softplus(−x).

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.mish.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %0 = aten.abs.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %1 = aten.neg.default(%0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %2 = aten.exp.default(%1) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %3 = aten.add.Scalar(%2, 1) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %4 = aten.log.default(%3) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %5 = aten.clamp.default(%x, 0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %6 = aten.add.Tensor(%5, %4) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      %7 = aten.tanh.default(%6) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.mul.Tensor(%x, %7) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
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
from stepwell.translate.rewrites.aten.building import emit


@dataclass(frozen=True)
class Softplus:
    """An op that is a softplus and little more."""

    op: SchemaOp


@dataclass(frozen=True)
class SoftplusToLog(Rewrite[Softplus]):
    """`softplus`, `mish`, `log_sigmoid` to exp, log and clamp."""

    name: ClassVar[str] = "softplus-to-log"
    bound: ClassVar[Bound] = Bound(1e-6, 3e-7, "log(1 + e) for log1p(e), both at most log 2")
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.SoftplusDefault,
        aten.MishDefault,
        aten.LogSigmoidDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> Softplus | Refusal | None:
        """f32, and for softplus the usual beta and threshold."""
        if element(op.operands[0].type) != f32:
            return Refusal("the error bound of this rewrite holds for float32 only")
        if isinstance(op, aten.SoftplusDefault):
            if op.arg("beta") != 1:
                return Refusal(f"beta is {op.arg('beta')}, not 1")
            if op.arg("threshold") < 16:
                return Refusal(f"threshold {op.arg('threshold')} is low enough to be seen")
        return Softplus(op)

    def build(self, match: Softplus, rw: Rewriter) -> None:
        """Write the logarithm and what the op adds to it."""
        op, x = match.op, match.op.operands[0]

        def unary(form: type[SchemaOp], *args: object) -> SSAValue:
            return emit(rw, form.make(*args, result_types=[x.type]))

        is_log_sigmoid = isinstance(op, aten.LogSigmoidDefault)
        inner = unary(aten.NegDefault, x) if is_log_sigmoid else x
        decay = unary(aten.ExpDefault, unary(aten.NegDefault, unary(aten.AbsDefault, inner)))
        log = unary(aten.LogDefault, unary(aten.AddScalar, decay, 1))
        value = unary(aten.AddTensor, unary(aten.ClampDefault, inner, 0), log)
        if is_log_sigmoid:
            value = unary(aten.NegDefault, value)
        elif isinstance(op, aten.MishDefault):
            value = unary(aten.MulTensor, x, unary(aten.TanhDefault, value))
        rw.replace(op, [value])
