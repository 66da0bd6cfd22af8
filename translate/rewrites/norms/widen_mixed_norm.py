"""Compute a norm of halves with wider parameters in the type of its parameters.

A network in halves keeps its norms in float32 as a rule. PyTorch computes such a norm in the wider
type and rounds its result once; an op of two element types is none of any target's. Other mixtures
(bfloat16 beside float16) PyTorch exports, and has no kernel for: they are computed in float32, or
in float64 where that is among them.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<4xf32>
    %y = aten.layer_norm.default(%x, [4], %w) : (tensor<2x4xf16>, tensor<4xf32>) -> tensor<2x4xf16>
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<4xf32>
    %0 = aten._to_copy.default(%x, dtype=f32) : (tensor<2x4xf16>) -> tensor<2x4xf32>
    %1 = aten.layer_norm.default(%0, [4], %w) : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
    %y = aten._to_copy.default(%1, dtype=f16) : (tensor<2x4xf32>) -> tensor<2x4xf16>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import f32, f64
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element, with_element
from stepwell.translate.rewrites.building import become, emit, emit_as


@dataclass(frozen=True)
class Mixed:
    """A norm of which a parameter has another type, and the type that holds them all."""

    op: SchemaOp
    wide: Attribute


@dataclass(frozen=True)
class WidenMixedNorm(Rewrite[Mixed]):
    """`norm(x, w)` to `norm(x.float(), w).half()`, where w has another type than x."""

    name: ClassVar[str] = "widen-mixed-norm"
    bound: ClassVar[Bound] = roundings("one rounding to halves may go to either side")
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.LayerNormDefault,
        aten.GroupNormDefault,
        aten.BatchNormDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> Mixed | Refusal | None:
        """Guard: the types are not one."""
        first = element(op.operands[0].type)
        if all(element(value.type) is first for value in op.operands[1:]):
            return None
        held = {element(value.type) for value in op.operands}
        return Mixed(op, f64 if f64 in held else f32) if len(held) > 1 else None

    def build(self, match: Mixed, rw: Rewriter) -> None:
        """The norm between casts; narrower parameters are cast too."""
        op, result, wide_type = match.op, match.op.results[0], match.wide
        arguments = {
            name: cast(rw, value, wide_type) if isinstance(value, SSAValue) else value
            for name, value in op.present().items()
        }
        wide = type(op).from_arguments(arguments, [with_element(result.type, wide_type)])
        narrow = element(result.type)
        if narrow == wide_type:
            rw.replace(op, [emit_as(rw, wide, result)])
            return
        become(rw, op, aten._ToCopyDefault, emit(rw, wide), dtype=narrow)


def cast(rw: Rewriter, value: SSAValue, held: Attribute) -> SSAValue:
    """A value in another element type; itself where it is of that type."""
    if element(value.type) == held:
        return value
    types = [with_element(value.type, held)]
    return emit(rw, aten._ToCopyDefault.make(value, dtype=held, result_types=types))
