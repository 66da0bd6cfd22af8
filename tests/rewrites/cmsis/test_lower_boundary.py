"""LowerBoundary: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.lowerings.cmsis import borders

test_lower_boundary = cases(
    borders,
    """
lower-boundary: bytes without a sign go back to where they came from -> quantized_decomposed.quantize_per_tensor.default, quant.scast, quant.scast, quantized_decomposed.dequantize_per_tensor.default
    %x = quant.qcast(%f: f32[4]) -> !quant.uniform<u8:f32, 0.5:3>[4]; %y = quant.dcast(%x)
lower-boundary: a weight that floats use is dequantized ahead of time -> nothing
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<:0, {0.1, 0.2, 0.3}>[3, 4]
    %y = quant.dcast(%w)
lower-boundary: scales along an axis of a computed value -> refused: scales along an axis are for weights
    %y = quant.dcast(%x: i8<:0, {0.1, 0.2, 0.3}>[3, 4])
""",
)
