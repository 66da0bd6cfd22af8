"""Write logarithms of base 2 and 10 as multiples of the natural one: XNNPACK has no other.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.log10.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %0 = aten.log.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.mul.Scalar(%0, 0.43429448190325176) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import f32
from stepwell.ir.numerics import Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.aten.building import emit, emit_as
from stepwell.translate.rewrites.aten.ranges import is_away_from_zero

BASES: dict[type[Operation], int] = {aten.Log2Default: 2, aten.Log10Default: 10}


@dataclass(frozen=True)
class ExpandLogarithm(Rewrite[SchemaOp]):
    """`log2(x)`, `log10(x)` to `log(x) * (1 / log(base))`."""

    name: ClassVar[str] = "expand-logarithm"
    anchors: ClassVar[tuple[type[Operation], ...]] = tuple(BASES)
    bound: ClassVar[Bound] = Bound(
        5e-7, 0.0, "the product rounds once more, and so does its factor"
    )

    def match(self, op: SchemaOp, program: Program) -> SchemaOp | Refusal | None:
        """f32; of integers torch makes floats, which is a cast."""
        if element(op.operands[0].type) != f32:
            return Refusal("the error bound of this rewrite holds for float32 only")
        return op

    def deviates(self, match: SchemaOp, program: Program) -> Deviation | None:
        """A denormal number is zero inside a delegate; the runtime's own kernels keep it."""
        if is_away_from_zero(match.operands[0], program):
            return None
        return Deviation("the logarithm of a denormal number becomes that of zero, an infinity")

    def build(self, match: SchemaOp, rw: Rewriter) -> None:
        """The natural logarithm, scaled."""
        result = match.results[0]
        natural = emit(rw, aten.LogDefault.make(match.operands[0], result_types=[result.type]))
        factor = 1 / log(BASES[type(match)])
        new = aten.MulScalar.make(natural, factor, result_types=[result.type])
        rw.replace(match, [emit_as(rw, new, result)])
