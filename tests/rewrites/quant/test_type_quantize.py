"""Quantize and dequantize ops to types: other spellings, and parameters that are none."""

from rewrite_cases import cases

from stepwell.translate.rewrites.quant.casts import RULES

test_type_quantize = cases(
    RULES,
    """
type-quantize: scales along an axis go into the type -> quant.qcast, quant.scast
    %y = quantized_decomposed.quantize_per_channel.default(%x: f32[2, 3], %s: constant "s#positive" f32[2], %z: constant "z#zeros" i32[2], 0, -127, 127, i8)
type-dequantize: a scale that is an input has no place in a type -> refused: computed at run time
    %y = quantized_decomposed.dequantize_per_channel.default(%x: i8[2, 3], %s: f32[2], %z: constant "z#zeros" i32[2], 0, -127, 127, i8)
type-dequantize: a scale of zero is no quantization -> refused: is not a positive number
    %y = quantized_decomposed.dequantize_per_tensor.default(%x: i8[2], 0.0, 0, -128, 127, i8)
type-quantize | type-dequantize: a dynamic quantization was never a candidate -> unchanged
    %s, %z = quantized_decomposed.choose_qparams.tensor(%x: f32[2, 3], -128, 127, 1e-07, i8)
    %q = quantized_decomposed.quantize_per_tensor.tensor(%x, %s, %z, -128, 127, i8)
    %y = quantized_decomposed.dequantize_per_tensor.tensor(%q, %s, %z, -128, 127, i8)
type-dequantize: integers of any width are typed -> quant.scast, quant.dcast
    - %y = quantized_decomposed.dequantize_per_tensor.default(%x: ui8[4], 0.5, 0, 0, 255, ui8)
    - %y = quantized_decomposed.dequantize_per_tensor.default(%x: i16[4], 0.5, 0, -32768, 32767, i16)
    - %y = quantized_decomposed.dequantize_per_tensor.default(%x: i32[4], 0.5, 0, -2147483648, 2147483647, i32)
""",
)
