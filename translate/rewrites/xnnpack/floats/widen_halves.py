"""Compute in single precision what half precision has no node for, or loses by.

torch computes each operator on halves in f32 and rounds its result once. XNNPACK has no transposed
convolution of halves, takes no numbers that are not halves themselves (0.0447…, 1/6, an epsilon of
1e-6), and a norm written in halves squares beyond 65504 as soon as a value is 256 from the mean. So
these operators are computed in f32 between two casts, inside the delegate: what torch does. A layer
norm's scale and shift stay in halves behind it, for the linear layers that follow to take in.

Before:
    %y = aten.gelu.default(%x, approximate="tanh") : (tensor<2x4xf16>) -> tensor<2x4xf16>
After:
    %0 = aten._to_copy.default(%x, dtype=f32) : (tensor<2x4xf16>) -> tensor<2x4xf32>
    %1 = aten.gelu.default(%0, approximate="tanh") : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %y = aten._to_copy.default(%1, dtype=f16) : (tensor<2x4xf32>) -> tensor<2x4xf16>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import f16, f32
from stepwell.ir.program import Program
from stepwell.ir.rewriter import remade
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element, with_element
from stepwell.ir.weights import recipe
from stepwell.translate.lowerings.aten import normalisations
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.building import cast
from stepwell.translate.rewrites.constants.lift_constant_scalar import rounds
from stepwell.translate.rewrites.norms.decompose_layer_norm import scale_and_shift
from stepwell.translate.rewrites.spelling.activations import is_gate_of_hardswish
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_held

ONCE = roundings("a result next to the middle of two halves may round to either")
THREE_TIMES = roundings("a layer norm's scale and its shift round to halves too")


@recipe("single")
def single(constant: torch.Tensor) -> torch.Tensor:
    """A constant in f32."""
    return constant.float()


def not_halves(op: SchemaOp) -> bool:
    """Whether a tensor that an operator reads or gives is none of halves that XNNPACK can hold."""
    values = (*op.operands, *op.results)
    return any(
        not isinstance(value.type, TensorType)
        or element(value.type) != f16
        or not_held(value) is not None
        for value in values
    )


def widened(rw: Rewriter, value: SSAValue) -> SSAValue:
    """A value in f32: a constant at compile time."""
    key = weight_key(value)
    if key is not None:
        return rw.weight(rw.weights.derive("single", [key]))
    return cast(rw, value, f32)


def compute_in_single(rw: Rewriter, op: SchemaOp) -> None:
    """The operator between casts, in its place."""
    types = [with_element(result.type, f32) for result in op.results]
    new = rw.insert(remade(op, [widened(rw, value) for value in op.operands], types))
    rw.replace(op, [cast(rw, result, f16) for result in new.results])


@dataclass(frozen=True)
class WidenHalves(Rewrite[SchemaOp]):
    """Norms, variances, powers, tanh GELU, … of halves, in f32 between casts."""

    name: ClassVar[str] = "widen-halves"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.LayerNormDefault,
        aten.GroupNormDefault,
        aten.RmsNormDefault,
        aten.GeluDefault,
        aten.HardsigmoidDefault,
        aten.ConvolutionDefault,
        aten.PowTensorScalar,
        *step(normalisations.variance_to_means).anchors,
    )
    bound: ClassVar[Bound] = THREE_TIMES

    def match(self, op: SchemaOp, program: Program) -> SchemaOp | Refusal | None:
        """Guards: halves throughout, of a shape XNNPACK holds; no kernel of halves does as well."""
        if not_halves(op):
            return None
        if isinstance(op, aten.GeluDefault) and op.arg("approximate") != "tanh":
            return None
        if isinstance(op, aten.HardsigmoidDefault) and is_gate_of_hardswish(op.results[0]):
            return None
        if isinstance(op, aten.ConvolutionDefault) and not op.arg("transposed"):
            return None
        return op

    def build(self, match: SchemaOp, rw: Rewriter) -> None:
        """The operator between casts; a layer norm's scale and shift behind them."""
        op = match
        if not isinstance(op, aten.LayerNormDefault):
            compute_in_single(rw, op)
            return
        value = widened(rw, op.operands[0])
        new = aten.LayerNormDefault.make(
            value, op.arg("normalized_shape"), eps=op.arg("eps"), result_types=[value.type]
        )
        value = cast(rw, rw.insert(new).results[0], f16)
        value = scale_and_shift(rw, value, op.operand("weight"), op.operand("bias"))
        rw.replace(op, [value])


@dataclass(frozen=True)
class WidenScalarOfHalves(Rewrite[SchemaOp]):
    """Arithmetic of halves with a number that is no half, in f32 between casts.

    It stands behind what folds such numbers into weights.
    """

    name: ClassVar[str] = "widen-scalar-of-halves"
    bound: ClassVar[Bound] = ONCE
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.MulScalar,
        aten.AddScalar,
        aten.SubScalar,
        aten.DivScalar,
        aten.RsubScalar,
    )

    def match(self, op: SchemaOp, program: Program) -> SchemaOp | Refusal | None:
        """Guards: halves of a shape XNNPACK holds, a number known and not exact in halves."""
        if not_halves(op):
            return None
        return op if rounds(op) is not None else None

    def build(self, match: SchemaOp, rw: Rewriter) -> None:
        """The operator between casts."""
        compute_in_single(rw, match)
