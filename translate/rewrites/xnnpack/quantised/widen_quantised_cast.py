"""Casts between halves and integers: float32 casts, with the halves widened or rounded beside them.

Neither XNNPACK nor ExecuTorch quantises halves. PyTorch widens them first, and rounds the float32
product of a dequantised one; so this changes no bit.

Before:
    %q = quant.qcast %x : tensor<4xf16> to tensor<4x!quant.uniform<i8:f16, 0.5:3>>
    %y = quant.dcast %q : tensor<4x!quant.uniform<i8:f16, 0.5:3>> to tensor<4xf16>
After:
    %w = aten._to_copy.default(%x, dtype=f32) : (tensor<4xf16>) -> tensor<4xf32>
    %a = quant.qcast %w : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
    %b = quant.scast %a : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xi8>
    %c = quant.scast %b : tensor<4xi8> to tensor<4x!quant.uniform<i8:f16, 0.5:3>>
    %d = quant.scast %c : tensor<4x!quant.uniform<i8:f16, 0.5:3>> to tensor<4xi8>
    %e = quant.scast %d : tensor<4xi8> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
    %f = quant.dcast %e : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>
    %y = aten._to_copy.default(%f, dtype=f16) : (tensor<4xf32>) -> tensor<4xf16>
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.quant import (
    DequantizeCast,
    Quantization,
    QuantizeCast,
    StorageCast,
    UniformQuantizedType,
    quantization,
)
from stepwell.dialects.quant.types import storage_element
from stepwell.ir.dtypes import bf16, f16, f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import with_element
from stepwell.translate.rewrites.building import cast


@dataclass(frozen=True)
class HalfCast:
    """A cast, and the quantisation it names."""

    op: QuantizeCast | DequantizeCast
    held: Quantization


@dataclass(frozen=True)
class WidenQuantisedCast(Rewrite[HalfCast]):
    """`quant.qcast` and `quant.dcast` of f16 or bf16 to those of f32."""

    name: ClassVar[str] = "widen-quantised-cast"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizeCast, DequantizeCast)

    def match(
        self, op: QuantizeCast | DequantizeCast, program: Program
    ) -> HalfCast | Refusal | None:
        """Guard: the type expresses halves."""
        held = quantization(op.result.type if isinstance(op, QuantizeCast) else op.input.type)
        assert held is not None
        if held.expressed not in (f16, bf16):
            return None
        return HalfCast(op, held)

    def build(self, match: HalfCast, rw: Rewriter) -> None:
        """The float32 cast; the type changes through the stored integers."""
        op, held = match.op, match.held
        wide = UniformQuantizedType(dataclasses.replace(held, expressed=f32))
        shape = op.input.type

        def stored_as(value: SSAValue, type_: UniformQuantizedType) -> SSAValue:
            plain = with_element(shape, storage_element(held))
            raw = rw.insert(StorageCast(value, plain)).results[0]
            return rw.insert(StorageCast(raw, with_element(shape, type_))).results[0]

        if isinstance(op, QuantizeCast):
            real = cast(rw, op.input, f32)
            made = rw.insert(QuantizeCast(real, with_element(shape, wide))).results[0]
            rw.replace(op, [stored_as(made, UniformQuantizedType(held))])
            return
        value = stored_as(op.input, wide)
        real = rw.insert(DequantizeCast(value, with_element(shape, f32))).results[0]
        rw.replace(op, [cast(rw, real, held.expressed)])
