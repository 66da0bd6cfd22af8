"""Compute in single precision what is written in bfloat16, of which XNNPACK has no nodes here.

Each bfloat16 is a single, so weights and inputs are what they were; a result is rounded to bfloat16
where it leaves, and where a node that stays outside reads it. Between ops that are widened nothing
is rounded (`cancel-narrowing`): a result is at least as near to the exact one as torch's, which
rounds each. Exponentials, roots and maxima stay with the runtime's kernels, as in the
stock flow, unless their operands are known to be none of the numbers that XNNPACK's own lose. A
sigmoid is 0 or 1 long before 10³⁰, from where on XNNPACK's may be NaN: it is asked no further out.

Before:
    %y = aten.tanh.default(%x) : (tensor<2x4xbf16>) -> tensor<2x4xbf16>
After:
    %0 = aten._to_copy.default(%x, dtype=f32) : (tensor<2x4xbf16>) -> tensor<2x4xf32>
    %1 = aten.tanh.default(%0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %y = aten._to_copy.default(%1, dtype=bf16) : (tensor<2x4xf32>) -> tensor<2x4xbf16>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.core import WeightOp
from stepwell.ir.dtypes import bf16, f32
from stepwell.ir.families import is_movement
from stepwell.ir.numerics import Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriter import remade
from stepwell.ir.rewriting import Bound, Rewrite, Rewriter
from stepwell.ir.types import element, with_element
from stepwell.translate.rewrites.building import cast, put
from stepwell.translate.rewrites.xnnpack.floats.widen_halves import widened
from stepwell.translate.values import interval

COMPUTES = (
    aten.AddTensor,
    aten.AddScalar,
    aten.SubTensor,
    aten.SubScalar,
    aten.MulTensor,
    aten.MulScalar,
    aten.DivTensor,
    aten.DivScalar,
    aten.NegDefault,
    aten.AbsDefault,
    aten.ExpDefault,
    aten.RsqrtDefault,
    aten.SqrtDefault,
    aten.SigmoidDefault,
    aten.SiluDefault,
    aten.TanhDefault,
    aten.GeluDefault,
    aten.ReluDefault,
    aten.ClampDefault,
    aten.MaximumDefault,
    aten.MinimumDefault,
    aten.PowTensorScalar,
    aten.MeanDim,
    aten.SumDimIntList,
    aten._SoftmaxDefault,
    aten.LayerNormDefault,
    aten.RmsNormDefault,
    aten.LinearDefault,
    aten.MmDefault,
    aten.BmmDefault,
    aten.MatmulDefault,
    aten.ConvolutionDefault,
    aten.ScaledDotProductAttentionDefault,
)


NO_NAN = Deviation("a NaN may become a number")
NO_INFINITE_ROOT = Deviation("the root of zero, a denormal number or an infinity may become NaN")
GREATEST = 1e30
"""XNNPACK's sigmoid and its inverse root are right up to here on every CPU."""
LEAST = 2.0**-126
"""The smallest number that is not denormal."""


@dataclass(frozen=True)
class WidenBfloat(Rewrite[SchemaOp]):
    """Layers, arithmetic and movement of bfloat16s in f32, between casts."""

    name: ClassVar[str] = "widen-bfloat"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        *COMPUTES,
        aten.ViewDefault,
        aten.PermuteDefault,
        aten.SliceTensor,
        aten.CatDefault,
        aten.ExpandDefault,
        aten.StackDefault,
        aten.UnbindInt,
    )
    bound: ClassVar[Bound] = roundings("torch rounds operands of its parts to bfloat16")

    def match(self, op: SchemaOp, program: Program) -> SchemaOp | None:
        """Results of bfloat16; movement only where what moves was computed in f32."""
        if any(not isinstance(r.type, TensorType) for r in op.results):
            return None
        if any(element(result.type) != bf16 for result in op.results):
            return None
        given = [v for v in op.operands if _is_bfloat(v)]
        if is_movement(op) and not any(_was_narrowed(value) for value in given):
            return None
        return op if any(not isinstance(v.owner, WeightOp) for v in given) else None

    def deviates(self, match: SchemaOp, program: Program) -> Deviation | None:
        """What XNNPACK's node may lose, which the kernel of the stock flow keeps."""
        op = match
        given = [interval(value, program) for value in op.operands]
        match op:
            case aten.MaximumDefault() | aten.MinimumDefault() | aten.ExpDefault():
                return NO_NAN if any(found.nan for found in given) else None
            case aten.RsqrtDefault():
                is_plain = given[0].low >= LEAST and given[0].high <= GREATEST
                return None if is_plain else NO_INFINITE_ROOT
            case _:
                return None

    def build(self, match: SchemaOp, rw: Rewriter) -> None:
        """The operator between casts, in its place."""
        op = match
        given = [widened(rw, v) if _is_bfloat(v) else v for v in op.operands]
        if isinstance(op, aten.SigmoidDefault):
            given = [put(rw, aten.ClampDefault, given[0], -GREATEST, GREATEST)]
        new = remade(op, given, [with_element(result.type, f32) for result in op.results])
        rw.replace(op, [cast(rw, value, bf16) for value in rw.insert(new).results])


def _is_bfloat(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and element(value.type) == bf16


def _was_narrowed(value: SSAValue) -> bool:
    owner = value.owner
    return isinstance(owner, aten._ToCopyDefault) and element(owner.operands[0].type) == f32
