"""LowerLinear: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.lowerings.cmsis import layers
from stepwell.translate.lowerings.lowering import step

LINEAR = ("aten.linear.default", "%xr, %wr", ("2x4", "3x4"))


def layer(words: Any, method: Any, **changed: Any) -> str:
    given = {"w": words.weight("w", "3x4"), "made": "2x3", "op": LINEAR, "out": "1.0", **changed}
    op, arguments, shapes = given["op"]
    x, extra = given.get("x", "2x4"), given.get("extra", ())
    return method(
        f"%x: {words.typed(x, given.get('held', '0.5:3'))}" + given.get("inputs", ""),
        given["w"],
        *extra,
        words.dcast("x", x, given.get("held", "0.5:3")),
        words.call("z", op, arguments, shapes, given["made"]),
        words.qcast("z", given["made"], given["out"]),
        gives=words.typed(given["made"], given["out"]),
    )


def addmm(rest: str = "", bias: str = "3") -> tuple[str, str, tuple[str, ...]]:
    return "aten.addmm.default", f"%b, %xr, %wr{rest}", (bias, "2x4", "4x3")


def bias(words: Any, shape: str = "3") -> str:
    return f'%b = stepwell.weight <"b"> "parameter" : {words.real(shape)}'


def test_addmm_is_a_linear_layer_over_the_transposed_weight(apply: Any, method: Any, words: Any):
    weight = words.weight("w", "4x3")
    done = apply(
        layer(words, method, w=weight, op=addmm(), extra=(bias(words),)), step(layers.linear)
    )
    assert done.ops() == ["quant.scast", "cmsis.quantized_linear"]


@pytest.mark.parametrize("scaled", ["beta=2", "alpha=2"])
def test_a_scaled_sum_is_refused(refused: Any, method: Any, words: Any, scaled: str):
    op = addmm(f", {scaled}")
    text = layer(words, method, w=words.weight("w", "4x3"), op=op, extra=(bias(words),))
    refused(text, step(layers.linear), "both must be 1")


def test_a_matrix_that_is_added_is_no_bias(refused: Any, method: Any, words: Any):
    op = addmm(bias="2x3")
    text = layer(words, method, w=words.weight("w", "4x3"), op=op, extra=(bias(words, "2x3"),))
    refused(text, step(layers.linear), "not one number per output")


def test_a_product_with_a_batch_is_none_of_its_business(refused: Any, method: Any, words: Any):
    weight = words.weight("w", "2x4x3")
    op = ("aten.matmul.default", "%xr, %wr", ("2x5x4", "2x4x3"))
    refused(layer(words, method, w=weight, op=op, x="2x5x4", made="2x5x3"), step(layers.linear))


def test_a_scale_for_each_input_is_refused(refused: Any, method: Any, words: Any):
    weight = words.weight("w", "3x4", ":1, {0.1, 0.2, 0.3, 0.4}")
    refused(layer(words, method, w=weight), step(layers.linear), "a scale for each input")


def test_a_zero_point_for_each_row_is_refused(refused: Any, method: Any, words: Any):
    weight = words.weight("w", "3x4", ":0, {0.1:1, 0.2, 0.3}")
    refused(layer(words, method, w=weight), step(layers.linear), "a zero point for each row")


def test_a_scale_for_each_row_is_a_convolution(apply: Any, method: Any, words: Any):
    weight = words.weight("w", "3x4", ":0, {0.1, 0.2, 0.3}")
    done = apply(layer(words, method, w=weight), step(layers.linear))
    assert "cmsis.quantized_conv2d_nhwc" in done.ops()


def test_rows_scaled_apart_need_a_known_shape(refused: Any, method: Any, words: Any):
    scales = ":0, {0.1, 0.2, 0.3}"
    typed = '!quant.uniform<i8:f32, 0.5>, #stepwell.shape<["s0", 4]>'
    made = '!quant.uniform<i8:f32, 1.0>, #stepwell.shape<["s0", 3]>'
    real = 'tensor<?x{}xf32, #stepwell.shape<["s0", {}]>>'
    text = method(
        f"%x: tensor<?x4x{typed}>",
        words.weight("w", "3x4", scales),
        f"%xr = quant.dcast %x : tensor<?x4x{typed}> to {real.format(4, 4)}",
        f"%z = aten.linear.default(%xr, %wr) : ({real.format(4, 4)}, tensor<3x4xf32>) "
        f"-> {real.format(3, 3)}",
        f"%y = quant.qcast %z : {real.format(3, 3)} to tensor<?x3x{made}>",
        gives=f"tensor<?x3x{made}>",
    )
    refused(text, step(layers.linear), "has a fixed shape")
