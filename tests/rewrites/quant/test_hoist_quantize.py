"""HoistQuantize: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.rewrites.quant.hoist_quantize import HoistQuantize

test_hoist_quantize = cases(
    HoistQuantize,
    """
a concatenation quantizes each operand -> quant.qcast, quant.scast, quant.qcast, quant.scast, aten.cat.default, quant.scast
    %c = aten.cat.default([%a: f32[2], %b: f32[3]])
    %y = quant.qcast(%c) -> i8<0.5>[5]
an op that computes is quantized behind -> unchanged
    %c = aten.neg.default(%a: f32[2])
    %y = quant.qcast(%c) -> i8<0.5>[2]
dropout in training computes -> unchanged
    %c = aten.dropout.default(%a: f32[2], 0.0, true)
    %y = quant.qcast(%c) -> i8<0.5>[2]
an input is quantized where it is -> unchanged
    %y = quant.qcast(%a: f32[2]) -> i8<0.5>[2]
scales along an axis do not follow a view -> refused: do not follow a movement
    %c = aten.view.default(%a: f32[6], [2, 3])
    %y = quant.qcast(%c) -> i8<:0, {0.5, 0.25}>[2, 3]
a value that is read as a float too is moved as one -> unchanged
    %c = aten.view.default(%a: f32[6], [2, 3])
    %y = quant.qcast(%c) -> i8<0.5>[2, 3]
    return %y, %c
""",
)
