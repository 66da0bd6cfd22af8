"""Where float and int8 meet: the casts that are left become the library's quantise and dequantise.

What the library's have no form for (u8, int32, scales along an axis) goes back to the
`quantized_decomposed` operators it came from; a weight that only float ops use is dequantised ahead
of time.

Before:
    %q = quant.qcast %x : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
After:
    %q = cmsis.quantize_per_tensor(%x) {scale = 5.0e-01 : f64, zero_point = 3 : i64,
        quant_min = -128 : i64, quant_max = 127 : i64, dtype = "int8"}
        : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5:3>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation

from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.cmsis.ops import DequantizePerTensor, QuantizePerTensor
from stepwell.dialects.quant import DequantizeCast, QuantizeCast, StorageCast
from stepwell.dialects.quant.recipes import store_parameters
from stepwell.dialects.quant.types import (
    Quantization,
    quantization,
    storage_dtype,
    storage_element,
)
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import f32, f64
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import with_element

Cast = QuantizeCast | DequantizeCast
QUANTIZE, DEQUANTIZE = (
    op_class(f"quantized_decomposed.{name}_per_tensor.default")
    for name in ("quantize", "dequantize")
)


@dataclass(frozen=True)
class Boundary:
    """A cast, and what it says."""

    op: Cast
    held: Quantization
    weight: str | None


@dataclass(frozen=True)
class LowerBoundary(Rewrite[Boundary]):
    """qcast and dcast → cmsis, or back to quantized_decomposed."""

    name: ClassVar[str] = "lower-boundary"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizeCast, DequantizeCast)
    bound: ClassVar[Bound] = Bound(absolute=1.0, reason="float32 reciprocal of the scale, in units")

    def match(self, op: Cast, program: Program) -> Boundary | Refusal | None:
        """Everything has a form; along an axis only weights do."""
        typed = op.result if isinstance(op, QuantizeCast) else op.input
        held = quantization(typed.type)
        assert held is not None
        if held.expressed == f64:
            return Refusal("it expresses float64; the operators take float32")
        key = None
        if isinstance(op, DequantizeCast) and isinstance(op.input.owner, StorageCast):
            key = weight_key(op.input.owner.input)
        if key is None and not held.is_per_tensor:
            return Refusal("scales along an axis are for weights; this value is computed")
        return Boundary(op, held, key if held.expressed == f32 else None)

    def build(self, match: Boundary, rw: Rewriter) -> None:
        """A dequantised weight, a library op, or the op it came from."""
        op, held = match.op, match.held
        if match.weight is not None:
            key = rw.weights.derive("quant.reals", [match.weight], **store_parameters(held))
            rw.replace(op, [rw.weight(key)])
            return
        dtype = storage_dtype(held)
        if dtype in (torch.int8, torch.int16) and held.expressed == f32:
            cls = QuantizePerTensor if isinstance(op, QuantizeCast) else DequantizePerTensor
            made = cls.make(
                op.input,
                result=op.result.type,
                scale=held.scale,
                zero_point=held.zero_point,
                quant_min=held.low,
                quant_max=held.high,
                dtype=str(dtype).removeprefix("torch."),
            )
            rw.replace(op, rw.insert(made).results)
            return
        numbers = (held.scale, held.zero_point, held.low, held.high, storage_element(held))
        stored = with_element(op.input.type, storage_element(held))
        if isinstance(op, QuantizeCast):
            plain = rw.insert(QUANTIZE.make(op.input, *numbers, result_types=[stored]))
            typed = rw.insert(StorageCast(plain.results[0], op.result.type))
            rw.replace(op, typed.results)
        else:
            raw = rw.insert(StorageCast(op.input, stored))
            wide = {} if held.expressed == f32 else {"out_dtype": held.expressed}
            types = [op.result.type]
            plain = DEQUANTIZE.make(raw.results[0], *numbers, result_types=types, **wide)
            rw.replace(op, rw.insert(plain).results)
