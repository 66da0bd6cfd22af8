"""Reads a dequantise op's parameters into the type of the integers it takes.

Before:
    %x = quantized_decomposed.dequantize_per_tensor.default(%q, 0.5, 3, -128, 127, i8)
        : (tensor<4xi8>) -> tensor<4xf32>
After:
    %t = quant.scast %q : tensor<4xi8> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
    %x = quant.dcast %t : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.quant import DequantizeCast, StorageCast
from stepwell.dialects.quant.ops import quantized_type
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.quant.parameters import is_dynamic, quantization_of
from stepwell.translate.rewrites.quant.type_quantize import Quantize

DEQUANTIZE = (
    "quantized_decomposed.dequantize_per_tensor.default",
    "quantized_decomposed.dequantize_per_tensor.tensor",
    "quantized_decomposed.dequantize_per_channel.default",
    "quantized_decomposed.dequantize_per_channel_group.default",
    "torchao.dequantize_affine.default",
)


@dataclass(frozen=True)
class TypeDequantize(Rewrite[Quantize]):
    """Dequantise ops become `quant.dcast`."""

    name: ClassVar[str] = "type-dequantize"
    anchors: ClassVar[tuple[type[Operation], ...]] = tuple(op_class(name) for name in DEQUANTIZE)

    def match(self, op: SchemaOp, program: Program) -> Quantize | Refusal | None:
        """Parameters must be constants, and a quantisation; dynamic ones are another's business."""
        if is_dynamic(op):
            return None
        held = quantization_of(op, op.operands[0].type, program)
        if isinstance(held, Refusal):
            return held
        if element(op.results[0].type) != held.data.expressed:
            return Refusal("it gives other numbers than its type expresses")
        return Quantize(op, op.operands[0], held)

    def build(self, match: Quantize, rw: Rewriter) -> None:
        """`quant.scast` to the typed integers, then `quant.dcast`."""
        typed = rw.insert(StorageCast(match.input, quantized_type(match.input.type, match.type)))
        real = rw.insert(DequantizeCast(typed.results[0], match.op.results[0].type))
        rw.replace(match.op, real.results)
