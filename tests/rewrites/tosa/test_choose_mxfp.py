"""Products become MX where a block-scaled form exists, and stay where none does."""

from typing import Any

import pytest

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


def bmm(held: str = "f32", batch: str = "") -> str:
    a, b, y = (f"tensor<{shape}x{held}>" for shape in ("2x3x40", "2x40x5", "2x3x5"))
    return f"""func.func @forward(%a: {a}, %b: {b}) -> {y} {{
  %y = aten.bmm.default(%a, %b) : ({a}, {b}) -> {y}
  func.return %y : {y}
}}
"""


def convolution(
    x: str = "1x32x5x5",
    w: str = "8x32x3x3",
    y: str = "1x8x3x3",
    axes: int = 2,
    groups: int = 1,
    transposed: bool = False,
    computed: bool = False,
) -> str:
    x, w, y = (f"tensor<{shape}xf32>" for shape in (x, w, y))
    ones, zeros = [1] * axes, [0] * axes
    extra = f", %w: {w}" if computed else ""
    line = "" if computed else f'%w = stepwell.weight <"w"> "parameter" : {w}'
    arguments = f"{ones}, {zeros}, {ones}, {str(transposed).lower()}, {zeros}, {groups}"
    return f"""func.func @forward(%x: {x}{extra}) -> {y} {{
  {line}
  %y = aten.convolution.default(%x, %w, none, {arguments}) : ({x}, {w}) -> {y}
  func.return %y : {y}
}}
"""


@pytest.mark.parametrize("held", ["f32", "f16", "bf16"])
def test_products_of_every_float_become_mx(apply: Any, held: str) -> None:
    assert apply(linear(held), ChooseMxLinear()).ops() == ["stepwell_mx.linear.default"]
    assert "stepwell_mx.matmul_t.default" in apply(bmm(held), ChooseMxMatmul()).ops()


def test_a_convolution_becomes_mx(apply: Any) -> None:
    assert apply(convolution(), ChooseMxConv2d()).ops() == ["stepwell_mx.conv2d.default"]


def test_a_layer_that_is_not_chosen_stays(refused: Any) -> None:
    refused(linear(), ChooseMxLinear(chosen=lambda op: False))


def test_doubles_stay(refused: Any) -> None:
    refused(linear("f64"), ChooseMxLinear(), "no MX product of float64")


def test_a_weight_computed_at_run_time_stays(refused: Any) -> None:
    refused(linear(computed=True), ChooseMxLinear(), "computed at run time")
    refused(convolution(computed=True), ChooseMxConv2d(), "computed at run time")


def test_a_form_that_two_payloads_lack_is_refused(refused: Any) -> None:
    refused(linear(), ChooseMxLinear("fp8e4m3", "fp4e2m1"), "needs block-scaled types")
    refused(convolution(), ChooseMxConv2d("mxint8", "mxint8"), "has no mxint8")


def test_a_depthwise_convolution_stays(refused: Any) -> None:
    text = convolution(w="32x1x3x3", y="1x32x3x3", groups=32)
    refused(text, ChooseMxConv2d(), "one channel and 31 zeros")


def test_a_gray_image_is_convolved_in_mx(apply: Any) -> None:
    text = convolution(x="1x1x5x5", w="8x1x3x3")
    assert apply(text, ChooseMxConv2d()).ops() == ["stepwell_mx.conv2d.default"]


def test_a_transposed_convolution_stays(refused: Any) -> None:
    text = convolution(w="32x8x3x3", y="1x8x7x7", transposed=True)
    refused(text, ChooseMxConv2d(), "no transposed MX convolution")


def test_a_convolution_of_one_axis_stays(refused: Any) -> None:
    text = convolution("1x32x5", "8x32x3", "1x8x3", axes=1)
    refused(text, ChooseMxConv2d(), "have two spatial axes")


def test_operands_of_two_types_stay(programs: Any) -> None:
    text = linear().replace("tensor<3x64xf32>", "tensor<3x64xf16>")
    program, _ = programs(text)
    op = next(op for op in program.method().walk() if op.name == "aten.linear.default")
    assert "float32 by float16" in ChooseMxLinear().match(op, program).reason  # pyright: ignore


def test_open_rows_become_mx(apply: Any) -> None:
    size = '?x{}xf32, #stepwell.shape<["s0", {}]>'
    text = linear().replace("2x64xf32", size.format(64, 64)).replace("2x3xf32", size.format(3, 3))
    assert apply(text, ChooseMxLinear()).ops() == ["stepwell_mx.linear.default"]


def test_images_of_symbolic_size_stay(refused: Any) -> None:
    size = '1x{}x?x5xf32, #stepwell.shape<[1, {}, "s0", 5]>'
    text = convolution(y="1x8x5x5", w="8x32x1x1").replace("1x32x5x5xf32", size.format(32, 32))
    text = text.replace("1x8x5x5xf32", size.format(8, 8))
    refused(text, ChooseMxConv2d(), "the shape is symbolic")
