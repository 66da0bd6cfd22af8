"""The cast node and WidenHalves: casts that are nodes, and halves that need no wider sums."""

from rewrite_cases import cases

from stepwell.translate.decompositions import floats
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.xnnpack.nodes.lower_elementwise import RULES

(CAST_NODE,) = (rule() for rule in RULES if rule.name == "lower-float-cast")

test_halves_stay = cases(CAST_NODE, step(floats.widen_halves), step(floats.widen_scalar_of_halves))("""
lower-float-cast: a cast to doubles -> applied 0 times
    %y = aten._to_copy.default(%x: f32[2, 4], dtype=f64)
lower-float-cast: a cast of seven axes -> refused: rank 7
    %y = aten._to_copy.default(%x: f32[1, 1, 1, 1, 1, 2, 4], dtype=f16)
lower-float-cast: a cast to channels last -> applied 0 times
    %y = aten._to_copy.default(%x: f32[1, 2, 3, 4], dtype=f16, memory_format="channels_last")
widen-halves: a norm of singles -> applied 0 times
    %y = aten.layer_norm.default(%x: f32[2, 4], [4])
widen-halves: a gelu by erf -> applied 0 times
    %y = aten.gelu.default(%x: f16[2, 4])
widen-scalar-of-halves: a number that is no half beside singles -> applied 0 times
    %y = aten.mul.Scalar(%x: f32[2, 4], 0.1)
widen-scalar-of-halves: halves of seven axes -> applied 0 times
    %y = aten.mul.Scalar(%x: f16[1, 1, 1, 1, 1, 2, 4], 0.1)
widen-scalar-of-halves: a number that is a half -> applied 0 times
    %y = aten.mul.Scalar(%x: f16[2, 4], 0.5)
""")


test_halves_in_single = cases(RULES, floats)("""
lower-float-cast: a constant is cast at compile time -> refused: one that is computed
    %c = aten._to_copy.default(%w: weight f32[2, 4], dtype=f16)
    %y = aten.add.Tensor(%x: f16[2, 4], %c)
widen-halves: a convolution of halves has a kernel -> unchanged
    %y = aten.convolution.default(%x: f16[1, 4, 3, 3], %w: weight f16[4, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
widen-halves: a root of halves that may be -inf -> refused: the operand may be -inf
    - %y = aten.pow.Tensor_Scalar(%x: f16[2, 4], 0.5)
    - %y = aten.pow.Tensor_Scalar(%x: f16[2, 4], -0.5)
widen-halves: a root of squares -> applied once
    %s = aten.mul.Tensor(%x: f16[2, 4], %x); %y = aten.pow.Tensor_Scalar(%s, 0.5)
widen-halves: a hardsigmoid that becomes a hardswish -> unchanged
    %s = aten.hardsigmoid.default(%x: f16[2, 4]); %y = aten.mul.Tensor(%x, %s)
widen-measured-range: steps of halves are measured in single -> applied once
    # ExecuTorch's kernel ends the process on anything else.
    - %y, %z = quantized_decomposed.choose_qparams.tensor(%x: f16[2, 4], -128, 127, 0.0001, i8); return %y
    - %y, %z = quantized_decomposed.choose_qparams.tensor(%x: bf16[2, 4], -128, 127, 0.0001, i8); return %y
widen-measured-range: steps of halves are measured in single -> applied 0 times
    %y, %z = quantized_decomposed.choose_qparams.tensor(%x: f32[2, 4], -128, 127, 0.0001, i8)
    return %y
""")
