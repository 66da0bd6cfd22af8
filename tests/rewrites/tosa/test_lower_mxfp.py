"""What the lowering of MX layers leaves alone, each with its reason."""

from typing import Any

from rewrite_cases import cases

from stepwell.translate.lowerings.tosa import block_scaled

LINEAR, CONV2D, QUANTIZE = (
    rule()
    for name in ("linear", "conv2d", "quantize")
    for rule in block_scaled.RULES
    if rule.name == f"lower-mx-{name}-to-tosa"
)


def linear(held: str = "f32", second: str = "fp8e4m3", form: str = "operators") -> str:
    x, w, y = (f"tensor<{shape}x{held}>" for shape in ("2x64", "3x64", "2x3"))
    said = f'none, "fp8e4m3", "{second}", "{form}"'
    return f"""func.func @forward(%x: {x}) -> {y} {{
  %w = stepwell.weight <"w"> "parameter" : {w}
  %y = stepwell_mx.linear.default(%x, %w, {said}) : ({x}, {w}) -> {y}
  func.return %y : {y}
}}
"""


def convolution(
    size: int = 5, stride: int = 1, held: str = "f32", computed: bool = False, form: str = "types"
) -> str:
    made = (size - 3) // stride + 1
    shapes = (f"1x32x{size}x{size}", "8x32x3x3", f"1x8x{made}x{made}")
    x, w, y = (f"tensor<{shape}x{held}>" for shape in shapes)
    extra = f", %w: {w}" if computed else ""
    line = "" if computed else f'%w = stepwell.weight <"w"> "parameter" : {w}'
    said = f'none, [{stride}, {stride}], [0, 0], [1, 1], 1, "fp6e2m3", "fp6e2m3", "{form}"'
    return f"""func.func @forward(%x: {x}{extra}) -> {y} {{
  {line}
  %y = stepwell_mx.conv2d.default(%x, %w, {said}) : ({x}, {w}) -> {y}
  func.return %y : {y}
}}
"""


test_lower_mxfp = cases(LINEAR, CONV2D, QUANTIZE)("""
lower-mx-linear-to-tosa: a layer of doubles -> refused: TOSA has no element type float64
    %y = stepwell_mx.linear.default(%x: f64[2, 64], %w: weight f64[3, 64], none, "fp8e4m3", "fp8e4m3", "operators")
lower-mx-conv2d-to-tosa: rows that no window reads are cut off -> tosa.transpose, tosa.const_shape, tosa.const_shape, tosa.slice, tosa.const_shape, tosa.const_shape, tosa.slice, tosa.cast, tosa.const, tosa.conv2d, tosa.transpose
    %y = stepwell_mx.conv2d.default(%x: f32[1, 32, 6, 6], %w: weight f32[8, 32, 3, 3], none, [2, 2], [0, 0], [1, 1], 1, "fp6e2m3", "fp6e2m3", "types")
lower-mx-conv2d-to-tosa: a convolution with a computed weight -> refused: computed at run time
    %y = stepwell_mx.conv2d.default(%x: f32[1, 32, 5, 5], %w: f32[8, 32, 3, 3], none, [1, 1], [0, 0], [1, 1], 1, "fp6e2m3", "fp6e2m3", "types")
lower-mx-conv2d-to-tosa: a convolution of either form lowers -> tosa.transpose, tosa.cast, tosa.const, tosa.conv2d, tosa.transpose
    %y = stepwell_mx.conv2d.default(%x: f32[1, 32, 5, 5], %w: weight f32[8, 32, 3, 3], none, [1, 1], [0, 0], [1, 1], 1, "fp6e2m3", "fp6e2m3", "types")
lower-mx-conv2d-to-tosa: a convolution of either form lowers -> tosa.transpose, tosa.cast_to_block_scaled, tosa.const, tosa.const_shape, tosa.const_shape, tosa.const_shape, tosa.conv2d_block_scaled, tosa.transpose
    %y = stepwell_mx.conv2d.default(%x: f32[1, 32, 5, 5], %w: weight f32[8, 32, 3, 3], none, [1, 1], [0, 0], [1, 1], 1, "fp6e2m3", "fp6e2m3", "operators")
lower-mx-quantize-to-tosa: rounding of doubles -> refused: TOSA has no element type float64
    %y = stepwell_mx.quantize_dequantize.default(%x: f64[2, 32], "fp4e2m1")
""")


def test_sums_in_bf16_of_other_floats_are_refused(programs: Any) -> None:
    program, _ = programs(linear("f16", form="types-bf16"))
    op = next(op for op in program.method().walk() if op.name.startswith("stepwell_mx"))
    assert "bfloat16" in LINEAR.match(op, program).reason  # pyright: ignore


def test_two_payloads_have_no_operators(programs: Any) -> None:
    program, _ = programs(linear(second="mxint8"))
    op = next(op for op in program.method().walk() if op.name.startswith("stepwell_mx"))
    assert "needs block-scaled types" in LINEAR.match(op, program).reason  # pyright: ignore


def matched(programs: Any, text: str, rewrite: Any) -> Any:
    """What a rewrite says of the MX op of a program that need not run."""
    program, _ = programs(text)
    op = next(op for op in program.method().walk() if op.name.startswith("stepwell_mx"))
    return rewrite.match(op, program)


def test_integers_are_refused(programs: Any) -> None:
    assert "no MX product of int32" in matched(programs, linear("i32"), LINEAR).reason
    assert "no MX convolution of int32" in matched(
        programs, convolution(held="i32"), CONV2D
    ).reason  # fmt: skip
    x = "tensor<2x32xi32>"
    text = f"""func.func @forward(%x: {x}) -> {x} {{
  %y = stepwell_mx.quantize_dequantize.default(%x, "fp4e2m1") : ({x}) -> {x}
  func.return %y : {x}
}}
"""
    assert "no MX cast of int32" in matched(programs, text, QUANTIZE).reason


def test_operands_of_two_types_are_refused(programs: Any) -> None:
    text = linear().replace("tensor<3x64xf32>", "tensor<3x64xf16>")
    assert "no MX product of float32 by float16" in matched(programs, text, LINEAR).reason


def test_a_convolution_of_unknown_form_is_refused(programs: Any) -> None:
    text = convolution(form="tensors")
    assert "no form 'tensors'" in matched(programs, text, CONV2D).reason
