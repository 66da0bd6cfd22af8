"""Products become MX where a block-scaled form exists, and stay where none does."""

from typing import Any

from rewrite_cases import cases

from stepwell.translate.rewrites.mxfp.choose_mxfp import (
    ChooseMxConv2d,
    ChooseMxLinear,
    ChooseMxMatmul,
)


def linear(held: str = "f32", computed: bool = False) -> str:
    x, w, y = (f"tensor<{shape}x{held}>" for shape in ("2x64", "3x64", "2x3"))
    extra = f", %w: {w}" if computed else ""
    line = "" if computed else f'%w = stepwell.weight <"w"> "parameter" : {w}'
    return f"""func.func @forward(%x: {x}{extra}) -> {y} {{
  {line}
  %y = aten.linear.default(%x, %w) : ({x}, {w}) -> {y}
  func.return %y : {y}
}}
"""


test_choose_mxfp = cases(
    ChooseMxLinear,
    """
products of every float become mx -> stepwell_mx.linear.default
    - %y = aten.linear.default(%x: f32[2, 64], %w: weight f32[3, 64])
    - %y = aten.linear.default(%x: f16[2, 64], %w: weight f16[3, 64])
    - %y = aten.linear.default(%x: bf16[2, 64], %w: weight bf16[3, 64])
doubles -> refused: no MX product of float64
    %y = aten.linear.default(%x: f64[2, 64], %w: weight f64[3, 64])
a weight computed at run time -> refused: computed at run time
    %y = aten.linear.default(%x: f32[2, 64], %w: f32[3, 64])
open rows become mx -> stepwell_mx.linear.default
    %y = aten.linear.default(%x: f32[s0, 64], %w: weight f32[3, 64])
""",
)


test_choose_mxfp_together = cases(
    ChooseMxMatmul,
    """
products of every float become mx -> aten.permute.default, stepwell_mx.matmul_t.default
    - %y = aten.bmm.default(%a: f32[2, 3, 40], %b: f32[2, 40, 5])
    - %y = aten.bmm.default(%a: f16[2, 3, 40], %b: f16[2, 40, 5])
    - %y = aten.bmm.default(%a: bf16[2, 3, 40], %b: bf16[2, 40, 5])
""",
)


test_choose_mxfp_in_pairs = cases(
    ChooseMxConv2d,
    """
a convolution becomes mx -> stepwell_mx.conv2d.default
    %y = aten.convolution.default(%x: f32[1, 32, 5, 5], %w: weight f32[8, 32, 3, 3], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
a weight computed at run time -> refused: computed at run time
    %y = aten.convolution.default(%x: f32[1, 32, 5, 5], %w: f32[8, 32, 3, 3], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
a depthwise convolution -> refused: one channel and 31 zeros
    %y = aten.convolution.default(%x: f32[1, 32, 5, 5], %w: weight f32[32, 1, 3, 3], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 32)
a gray image is convolved in mx -> stepwell_mx.conv2d.default
    %y = aten.convolution.default(%x: f32[1, 1, 5, 5], %w: weight f32[8, 1, 3, 3], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
a transposed convolution -> refused: no transposed MX convolution
    %y = aten.convolution.default(%x: f32[1, 32, 5, 5], %w: weight f32[32, 8, 3, 3], none, [1, 1], [0, 0], [1, 1], true, [0, 0], 1)
a convolution of one axis -> refused: have two spatial axes
    %y = aten.convolution.default(%x: f32[1, 32, 5], %w: weight f32[8, 32, 3], none, [1], [0], [1], false, [0], 1)
images of symbolic size -> refused: the shape is symbolic
    %y = aten.convolution.default(%x: f32[1, 32, s0, 5], %w: weight f32[8, 32, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
""",
)


test_choose_mxfp_more = cases(
    ChooseMxLinear("fp8e4m3", "fp4e2m1"),
    """
a form that two payloads lack -> refused: needs block-scaled types
    %y = aten.linear.default(%x: f32[2, 64], %w: weight f32[3, 64])
""",
)


test_choose_mxfp_others = cases(
    ChooseMxConv2d("mxint8", "mxint8"),
    """
a form that two payloads lack -> refused: has no mxint8
    %y = aten.convolution.default(%x: f32[1, 32, 5, 5], %w: weight f32[8, 32, 3, 3], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
""",
)


def test_a_layer_that_is_not_chosen_stays(refused: Any) -> None:
    refused(linear(), ChooseMxLinear(chosen=lambda op: False))


def test_operands_of_two_types_stay(programs: Any) -> None:
    text = linear().replace("tensor<3x64xf32>", "tensor<3x64xf16>")
    program, _ = programs(text)
    op = next(op for op in program.method().walk() if op.name == "aten.linear.default")
    assert "float32 by float16" in ChooseMxLinear().match(op, program).reason  # pyright: ignore
