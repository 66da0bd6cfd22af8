"""Products with a scaled sum: `addmm`, `baddbmm`, and numbers that `alpha` scales.

Before:
    %y = aten.addmm.default(%a, %x, %z, beta=0.5, alpha=2) : (tensor<5xf32>, tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
After:
    %0 = aten.mm.default(%x, %z) : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
    %1 = aten.mul.Scalar(%0, 2) : (tensor<3x5xf32>) -> tensor<3x5xf32>
    %2 = aten.mul.Scalar(%a, 0.5) : (tensor<5xf32>) -> tensor<5xf32>
    %y = aten.add.Tensor(%1, %2) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import is_float
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.building import become, emit, put
from stepwell.translate.rewrites.tosa.operators.lowering import is_number


@dataclass(frozen=True)
class ScaledSumToProducts(Rewrite[SchemaOp]):
    """`beta · a + alpha · (x @ y)`, and `x + alpha · number`."""

    name: ClassVar[str] = "scaled-sum-to-products-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.AddmmDefault,
        aten.BaddbmmDefault,
        aten.AddScalar,
        aten.SubScalar,
    )
    bound: ClassVar[Bound] = roundings("torch rounds the parts of the sum otherwise")

    def match(self, op: SchemaOp, program: Program) -> SchemaOp | Refusal | None:
        """Numbers that are known; floats where they multiply."""
        if isinstance(op, aten.AddScalar | aten.SubScalar):
            if op.arg("alpha") == 1:
                return None
            if not is_number(op.arg("alpha")) or not is_number(op.arg("other")):
                return Refusal("a number is known only at run time")
            return op
        if not is_number(op.arg("alpha")) or not is_number(op.arg("beta")):
            return Refusal("alpha or beta is known only at run time")
        if not is_float(element(op.results[0].type)):
            return Refusal("it multiplies integers")
        return op

    def build(self, match: SchemaOp, rw: Rewriter) -> None:
        """The product, the two scales that are not 1, the sum."""
        op = match
        if isinstance(op, aten.AddScalar | aten.SubScalar):
            number = op.arg("other") * op.arg("alpha")
            become(rw, op, type(op), op.operands[0], number)
            return
        added, left, right = op.operands
        cls = aten.MmDefault if isinstance(op, aten.AddmmDefault) else aten.BmmDefault
        made = op.results[0].type
        product = emit(rw, cls.make(left, right, result_types=[made]))
        product = _scaled(product, op.arg("alpha"), rw)
        if op.arg("beta") == 0:  # torch reads nothing of what is added then, not even a NaN
            rw.replace(op, [product])
            return
        added = _scaled(added, op.arg("beta"), rw)
        become(rw, op, aten.AddTensor, product, added)


def _scaled(value: SSAValue, factor: float, rw: Rewriter) -> SSAValue:
    if factor == 1:
        return value
    return put(rw, aten.MulScalar, value, factor)
