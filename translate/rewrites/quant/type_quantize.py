"""Puts the parameters of a quantise op into the type of what it makes.

PT2E's `quantized_decomposed.quantize_*` and torchao's `quantize_affine` carry scale, zero point and
range as arguments, and their result is a plain integer tensor that any op may misread. Here the
numbers move into the type; `quant.scast` gives the plain integers to whoever still wants them.

Before:
    %q = quantized_decomposed.quantize_per_tensor.default(%x, 0.5, 3, -128, 127, i8)
        : (tensor<4xf32>) -> tensor<4xi8>
After:
    %q = quant.qcast %x : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
    %r = quant.scast %q : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xi8>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.quant import QuantizeCast, StorageCast, UniformQuantizedType
from stepwell.dialects.quant.ops import quantized_type
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.quant.parameters import is_dynamic, quantization_of

QUANTIZE = (
    "quantized_decomposed.quantize_per_tensor.default",
    "quantized_decomposed.quantize_per_tensor.tensor",
    "quantized_decomposed.quantize_per_channel.default",
    "torchao.quantize_affine.default",
)


@dataclass(frozen=True)
class Quantize:
    """A quantise op with constant parameters."""

    op: SchemaOp
    input: SSAValue
    type: UniformQuantizedType


@dataclass(frozen=True)
class TypeQuantize(Rewrite[Quantize]):
    """Quantise ops become `quant.qcast`."""

    name: ClassVar[str] = "type-quantize"
    anchors: ClassVar[tuple[type[Operation], ...]] = tuple(op_class(name) for name in QUANTIZE)

    def match(self, op: SchemaOp, program: Program) -> Quantize | Refusal | None:
        """Parameters must be constants, and a quantisation; dynamic ones are another's business."""
        if is_dynamic(op):
            return None
        held = quantization_of(op, op.results[0].type, program)
        if isinstance(held, Refusal):
            return held
        return Quantize(op, op.operands[0], held)

    def build(self, match: Quantize, rw: Rewriter) -> None:
        """`quant.qcast`, then `quant.scast` for those who use the integers."""
        given = match.input.type
        made = rw.insert(QuantizeCast(match.input, quantized_type(given, match.type)))
        raw = rw.insert(StorageCast(made.results[0], match.op.results[0].type))
        rw.replace(match.op, raw.results)
