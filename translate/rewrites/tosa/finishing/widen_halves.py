"""Compute in f32 what TOSA would round at every step in half precision.

torch computes each operator on halves in f32 and rounds its result once. TOSA's sums of fp16 are fp16
at every step (3000 ones add up to 2048), and a norm or an activation spelled out in operators
rounds after each of them. So these ops stand between two casts, as torch has them.

Before:
    %y = aten._softmax.default(%x, 1, false) : (tensor<2x4xf16>) -> tensor<2x4xf16>
After:
    %0 = aten._to_copy.default(%x, dtype=f32) : (tensor<2x4xf16>) -> tensor<2x4xf32>
    %1 = aten._softmax.default(%0, 1, false) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %y = aten._to_copy.default(%1, dtype=f16) : (tensor<2x4xf32>) -> tensor<2x4xf16>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa.targets import level_of
from stepwell.ir.bounds import roundings
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import bf16, f16, f32
from stepwell.ir.program import Program
from stepwell.ir.rewriter import remade
from stepwell.ir.rewriting import Bound, Rewrite, Rewriter
from stepwell.ir.types import element, with_element
from stepwell.translate.lowerings.aten import normalisations
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.building import cast
from stepwell.translate.rewrites.tosa.operators.windows import is_image_mean

HALVES: tuple[Attribute, ...] = (f16, bf16)


@dataclass(frozen=True)
class Halves:
    """An op on halves of one type."""

    op: SchemaOp
    held: Attribute


@dataclass(frozen=True)
class WidenHalves(Rewrite[Halves]):
    """Norms, softmax, sums, gelu, … of fp16 and bf16, in f32 between casts."""

    name: ClassVar[str] = "widen-halves-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.LayerNormDefault,
        aten.GroupNormDefault,
        aten.RmsNormDefault,
        aten._SoftmaxDefault,
        aten._LogSoftmaxDefault,
        aten.LogsumexpDefault,
        aten.LinalgVectorNormDefault,
        aten.SumDimIntList,
        aten.MeanDim,
        aten.ProdDimInt,
        aten.ProdDefault,
        aten.GeluDefault,
        aten.HardsigmoidDefault,
        aten.SquareDefault,
        aten.LerpScalar,
        aten.SoftplusDefault,
        aten.MishDefault,
        aten.LogSigmoidDefault,
        aten.EluDefault,
        aten.SeluDefault,
        aten.CeluDefault,
        *step(normalisations.variance_to_means).anchors,
    )
    bound: ClassVar[Bound] = roundings("a result next to the middle of two halves")

    def match(self, op: SchemaOp, program: Program) -> Halves | None:
        """Tensors of one type of halves throughout; the mean of an image is a pool, with f32 sums."""
        types = [value.type for value in (*op.operands, *op.results)]
        held = element(op.results[0].type) if isinstance(op.results[0].type, TensorType) else None
        if held not in HALVES:
            return None
        if any(not isinstance(type_, TensorType) or element(type_) != held for type_ in types):
            return None
        if is_image_mean(op, level_of(program.context.target)):
            return None
        return Halves(op, held)

    def build(self, match: Halves, rw: Rewriter) -> None:
        """The op between casts."""
        op = match.op
        types = [with_element(result.type, f32) for result in op.results]
        new = rw.insert(remade(op, [_widened(rw, value) for value in op.operands], types))
        rw.replace(op, [cast(rw, value, match.held) for value in new.results])


def _widened(rw: Rewriter, value: SSAValue) -> SSAValue:
    key = weight_key(value)
    if key is not None:
        return rw.weight(rw.weights.derive("tosa_single", [key]))
    return cast(rw, value, f32)
