"""What the lowering of MX layers leaves alone, each with its reason."""

from typing import Any

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


def test_a_layer_of_doubles_is_refused(refused: Any) -> None:
    refused(linear("f64"), LINEAR, "TOSA has no element type float64")


def test_sums_in_bf16_of_other_floats_are_refused(programs: Any) -> None:
    program, _ = programs(linear("f16", form="types-bf16"))
    op = next(op for op in program.method().walk() if op.name.startswith("stepwell_mx"))
    assert "bfloat16" in LINEAR.match(op, program).reason  # pyright: ignore


def test_two_payloads_have_no_operators(programs: Any) -> None:
    program, _ = programs(linear(second="mxint8"))
    op = next(op for op in program.method().walk() if op.name.startswith("stepwell_mx"))
    assert "needs block-scaled types" in LINEAR.match(op, program).reason  # pyright: ignore


def test_rows_that_no_window_reads_are_cut_off(apply: Any) -> None:
    done = apply(convolution(size=6, stride=2), CONV2D)
    assert done.ops().count("tosa.slice") == 2


def test_a_convolution_with_a_computed_weight_is_refused(refused: Any) -> None:
    refused(convolution(computed=True), CONV2D, "computed at run time")


def test_a_convolution_of_either_form_lowers(apply: Any) -> None:
    assert "tosa.conv2d" in apply(convolution(), CONV2D).ops()
    done = apply(convolution(form="operators"), CONV2D)
    assert "tosa.conv2d_block_scaled" in done.ops()


def test_rounding_of_doubles_is_refused(refused: Any) -> None:
    x = "tensor<2x32xf64>"
    text = f"""func.func @forward(%x: {x}) -> {x} {{
  %y = stepwell_mx.quantize_dequantize.default(%x, "fp4e2m1") : ({x}) -> {x}
  func.return %y : {x}
}}
"""
    refused(text, QUANTIZE, "TOSA has no element type float64")


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
