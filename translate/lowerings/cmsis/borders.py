"""Lowerings of pads, and of the remaining casts between floats and integers."""

from __future__ import annotations

from math import isnan
from typing import Any, cast

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.cmsis.ops import DequantizePerTensor, QuantizePerTensor
from stepwell.dialects.quant import QuantizeCast, StorageCast
from stepwell.dialects.quant.recipes import store_parameters
from stepwell.dialects.quant.types import quantization, storage_dtype, storage_element
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import f32, f64
from stepwell.ir.rewriting.rewrite import EXACT, Bound, Refusal, Rewriter
from stepwell.ir.types import dims, is_static, with_element
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.cmsis.values import written
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.quantized.layers import Layer, Parts
from stepwell.translate.quantized.recognize import Activation, Use, narrowed
from stepwell.translate.rewrites.cmsis.layout.reshape import padded
from stepwell.translate.rewrites.cmsis.operators.rescale import rescaled

QUANTIZE, DEQUANTIZE = (
    op_class(f"quantized_decomposed.{name}_per_tensor.default")
    for name in ("quantize", "dequantize")
)


def _padded(op: SchemaOp) -> Parts | Refusal:
    """Match pads of constant mode that do not crop, of rank at most 4."""
    if op.name == "aten.pad.default" and op.arg("mode") != "constant":
        return Refusal(f"the mode is {op.arg('mode')}; the kernel pads with a constant")
    if len(dims(op.operands[0].type)) > 4 or not is_static(op.results[0].type):
        return Refusal(f"the input is {op.operands[0].type}; the kernel takes rank 4 at most")
    if any(width < 0 for width in cast("list[int]", op.arg("pad"))):
        return Refusal("the op crops; the kernel does not")
    return Parts(op.operands[:1])


@lowers(
    "aten.constant_pad_nd.default",
    "aten.pad.default",
    to="cmsis",
    quantized_operands=_padded,
    takes_empty=True,
    bound=EXACT,
    sample="""
        %a = quant.dcast %x : tensor<2x3x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x3xf32>
        %p = aten.constant_pad_nd.default(%a, [0, 1]) : (tensor<2x3xf32>) -> tensor<2x4xf32>
        %q = quant.qcast %p : tensor<2x4xf32> to tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>
    """,
)
def pad(x: Activation, *, pad: Any, value: Any, layer: Layer, b: Rewriter) -> Any:
    """Pad the stored integers; add a table lookup if the result's quantization differs."""
    number = float(value or 0)
    if isnan(number):
        refuse("the op pads with NaN, which no quantized type represents")
    cell = narrowed(x.held, [(number, number)])[0]
    is_exact = (cell - x.held.zero_point) * x.held.scale == number
    if not is_exact and any(use.held != x.held for use in layer.uses):
        refuse(f"the op pads with {number:g}, which its input's quantized type does not represent")
    missing = [0] * (len(dims(x.value.type)) - len(pad) // 2)
    before, after = (*missing, *reversed(pad[0::2])), (*missing, *reversed(pad[1::2]))
    y = padded(b, x.value, before, after, cell) if any((*before, *after)) else x.value

    def of_use(use: Use) -> SSAValue:
        return rescaled(b, y, use)

    return of_use


@lowers(
    "quant.qcast",
    "quant.dcast",
    to="cmsis",
    bound=Bound(absolute=1.0, reason="float32 reciprocal of the scale, in units"),
    name="lower-boundary",
    sample="%q = quant.qcast %x : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>",
)
def boundary(x: Value, *, op: Any, b: Rewriter) -> Value:
    """Lower the remaining casts to the library's quantize and dequantize.

    Casts of types that these kernels do not support (u8, int32) become `quantized_decomposed`
    operators again; a weight that only float ops use is dequantized at compile time.
    """
    quantizes = isinstance(op, QuantizeCast)
    result_quantization = quantization((op.result if quantizes else op.input).type)
    assert result_quantization is not None
    if result_quantization.expressed == f64:
        refuse("the quantized type expresses float64; the operators take float32")
    maker = op.input.owner
    key = None
    if not quantizes and isinstance(maker, StorageCast):
        key = weight_key(maker.input)
    if key is None and not result_quantization.is_per_tensor:
        refuse("only weights may have scales along an axis; this value is computed at run time")
    if key is not None and result_quantization.expressed == f32:
        return Value(
            b.weight(
                b.weights.derive("quant.reals", [key], **store_parameters(result_quantization))
            ),
            b,
        )
    dtype = storage_dtype(result_quantization)
    if dtype in (torch.int8, torch.int16) and result_quantization.expressed == f32:
        fields: dict[str, Any] = {
            "scale": result_quantization.scale,
            "zero_point": result_quantization.zero_point,
            "quant_min": result_quantization.low,
            "quant_max": result_quantization.high,
            "dtype": str(dtype).removeprefix("torch."),
        }
        cls: Any = QuantizePerTensor if quantizes else DequantizePerTensor
        return Value(written(cls.make(op.input, result=op.result.type, **fields), b), b)
    numbers = (
        result_quantization.scale,
        result_quantization.zero_point,
        result_quantization.low,
        result_quantization.high,
        storage_element(result_quantization),
    )
    stored = with_element(op.input.type, storage_element(result_quantization))
    if quantizes:
        plain = b.insert(QUANTIZE.make(op.input, *numbers, result_types=[stored])).results[0]
        return Value(b.insert(StorageCast(plain, op.result.type)).results[0], b)
    raw: SSAValue = b.insert(StorageCast(op.input, stored)).results[0]
    wide = (
        {} if result_quantization.expressed == f32 else {"out_dtype": result_quantization.expressed}
    )
    real = DEQUANTIZE.make(raw, *numbers, result_types=[op.result.type], **wide)
    return Value(b.insert(real).results[0], b)


RULES = lowerings_of(__name__)
