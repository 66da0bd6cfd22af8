"""Casts that no kernel took in: convert nodes, float constants, or the operators they came from.

A dequantised constant becomes the floats it stands for, so that the layer that reads it still runs
in XNNPACK. Every other cast is `xnnpack.convert` where XNNPACK has one, and else goes back to
`quantized_decomposed`, whose kernels ExecuTorch has.

Before:
    %q = quant.qcast %x : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
    %y = quant.dcast %q : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>
After:
    %q = xnnpack.convert(%x) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5:3>>
    %y = xnnpack.convert(%q) : (tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.quant import (
    DequantizeCast,
    Quantization,
    QuantizeCast,
    StorageCast,
    quantization,
)
from stepwell.dialects.quant.recipes import store_parameters
from stepwell.dialects.quant.types import storage_element
from stepwell.dialects.xnnpack import Convert
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import EXACT, Bound, Refusal, Rewrite, Rewriter, Value
from stepwell.ir.types import with_element
from stepwell.translate.quantised.recognise import StoredWeight, stored_constant
from stepwell.translate.rewrites.xnnpack.quantised.quantised import (
    not_computed_range,
    not_static_int8,
)
from stepwell.translate.rewrites.xnnpack.quantised.quantised_bounds import conversion

Cast = QuantizeCast | DequantizeCast
_LIBRARY = "quantized_decomposed."


@dataclass(frozen=True)
class RealConstant:
    """A dequantised constant."""

    op: Operation
    weight: StoredWeight


@dataclass(frozen=True)
class FoldDequantisedConstant(Rewrite[RealConstant]):
    """dq(constant) to the floats it stands for."""

    name: ClassVar[str] = "fold-dequantised-constant"
    anchors: ClassVar[tuple[type[Operation], ...]] = (DequantizeCast,)

    def match(self, op: DequantizeCast, program: Program) -> RealConstant | Refusal | None:
        """The integers must be a weight."""
        weight = stored_constant(op.result)
        if weight is None:
            return None
        if weight.held.expressed != f32:
            return Refusal("only float32 values are computed ahead of time")
        return RealConstant(op, weight)

    def build(self, match: RealConstant, rw: Rewriter) -> None:
        """The derived weight."""
        parameters = store_parameters(match.weight.held)
        key = rw.weights.derive("quant.reals", [match.weight.key], **parameters)
        rw.replace(match.op, [rw.weight(key)])


@dataclass(frozen=True)
class Converted:
    """A cast that XNNPACK does."""

    op: Cast


@dataclass(frozen=True)
class LowerQuantisedCast(Rewrite[Converted]):
    """`quant.qcast` and `quant.dcast` of int8 to `xnnpack.convert`."""

    name: ClassVar[str] = "lower-quantised-cast"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizeCast, DequantizeCast)

    def match(self, op: Cast, program: Program) -> Converted | Refusal | None:
        """Guards: float32 on one side, all of int8 or uint8 with one scale on the other."""
        typed = op.result if isinstance(op, QuantizeCast) else op.input
        refusal = not_static_int8(typed)
        if refusal is None and isinstance(op, QuantizeCast):
            refusal = not_computed_range(typed)
        return refusal or Converted(op)

    def bound_at(self, match: Converted, value: Value) -> Bound:
        """`quantised_bounds.conversion`."""
        held = quantization(match.op.result.type)
        return EXACT if held is None else conversion(held)

    def build(self, match: Converted, rw: Rewriter) -> None:
        """The node."""
        op = match.op
        rw.replace(op, [rw.insert(Convert.make(op.input, result=op.result.type)).results[0]])


@dataclass(frozen=True)
class Untyped:
    """A cast, and the quantisation it is to name as arguments."""

    op: Cast
    held: Quantization


@dataclass(frozen=True)
class UntypeQuantisation(Rewrite[Untyped]):
    """A cast that XNNPACK does not do, as the operator of `quantized_decomposed` it came from."""

    name: ClassVar[str] = "untype-quantisation"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizeCast, DequantizeCast)

    def match(self, op: Cast, program: Program) -> Untyped | Refusal | None:
        """Guards: float32, one scale or one for each index of an axis."""
        held = quantization(op.result.type if isinstance(op, QuantizeCast) else op.input.type)
        assert held is not None
        if held.sub_channel:
            return Refusal("ExecuTorch has no operator for groups of an axis")
        if held.expressed != f32:
            return Refusal("ExecuTorch's operators quantise float32 values")
        return Untyped(op, held)

    def build(self, match: Untyped, rw: Rewriter) -> None:
        """The stored integers, and the operator with its numbers."""
        op, held = match.op, match.held
        verb = "quantize" if isinstance(op, QuantizeCast) else "dequantize"
        if held.is_per_tensor:
            cls = op_class(f"{_LIBRARY}{verb}_per_tensor.default")
            numbers: tuple[object, ...] = (held.scale, held.zero_point)
        else:
            cls = op_class(f"{_LIBRARY}{verb}_per_channel.default")
            numbers = (
                rw.constant(held.scale_values(torch.float64), "scales"),
                rw.constant(held.zero_point_values(torch.int64), "zero_points"),
                held.axis,
            )
        value = op.input
        if isinstance(op, DequantizeCast):
            stored = with_element(value.type, storage_element(held))
            value = rw.insert(StorageCast(value, stored)).results[0]
        made: SchemaOp = cls.make(value, *numbers, held.low, held.high, storage_element(held))
        result = rw.insert(made).results[0]
        if isinstance(op, QuantizeCast):
            result = rw.insert(StorageCast(result, op.result.type)).results[0]
        rw.replace(op, [result])
