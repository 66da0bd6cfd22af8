"""LowerMean: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.lowerings.cmsis import pooling
from stepwell.translate.lowerings.lowering import step


def mean(
    words: Any, method: Any, shape: str, axes: str, made: str, rest: str = "", out: str = "0.5"
) -> str:
    return method(
        f"%x: {words.typed(shape)}",
        words.dcast("x", shape),
        words.call("z", "aten.mean.dim", f"%xr, {axes}{rest}", (shape,), made),
        words.qcast("z", made, out),
        gives=words.typed(made, out),
    )


@pytest.mark.parametrize(
    "axes, made, out, op",
    [
        ("[-1]", "2x3", "0.25", "cmsis.quantized_linear"),
        ("[1]", "2x4", "0.5", "cmsis.quantized_avg_pool2d_nhwc"),
        ("[1]", "2x4", "0.25", "cmsis.quantized_depthwise_conv2d_nhwc"),
    ],
)
def test_each_place_of_the_mean_has_its_operator(
    apply: Any, method: Any, words: Any, axes: str, made: str, out: str, op: str
):
    done = apply(mean(words, method, "2x3x4", axes, made, out=out), step(pooling.mean))
    assert op in done.ops()


@pytest.mark.parametrize(
    "axes, made, op",
    [
        ("[-1]", "2x3", "cmsis.quantized_linear"),
        ("[1]", "2x4", "cmsis.quantized_depthwise_conv2d_nhwc"),
    ],
)
def test_a_sum_is_a_layer_of_ones(
    apply: Any, method: Any, words: Any, axes: str, made: str, op: str
):
    text = mean(words, method, "2x3x4", axes, made, out="2.0")
    done = apply(text.replace("aten.mean.dim", "aten.sum.dim_IntList"), step(pooling.mean))
    assert op in done.ops()


def test_a_result_scale_far_too_fine_is_refused(refused: Any, method: Any, words: Any):
    text = mean(words, method, "2x3x4", "[-1]", "2x3", out="0.00000001")
    refused(text, step(pooling.mean), "past int32")


def test_dimensions_apart_are_refused(refused: Any, method: Any, words: Any):
    text = mean(words, method, "2x3x4", "[0, 2]", "3")
    refused(text, step(pooling.mean), "do not lie next to each other")


def test_another_element_type_is_refused(refused: Any, method: Any, words: Any):
    text = method(
        f"%x: {words.typed('2x3')}",
        words.dcast("x", "2x3"),
        "%z = aten.mean.dim(%xr, [1], dtype=f32) : (tensor<2x3xf32>) -> tensor<2xf32>",
        words.qcast("z", "2", "0.25"),
        gives=words.typed("2", "0.25"),
    )
    refused(text, step(pooling.mean), "changes the element type")


def test_a_sum_that_can_overflow_is_refused(refused: Any, method: Any, words: Any):
    text = mean(words, method, "8421504", "[0]", "", out="0.25")
    text = text.replace("tensor<x", "tensor<")
    refused(text, step(pooling.mean), "can overflow int32")


def test_a_shape_known_only_at_run_time_is_refused(refused: Any, method: Any, words: Any):
    held = '!quant.uniform<i8:f32, 0.5>, #stepwell.shape<["s0", 4]>'
    made = '!quant.uniform<i8:f32, 0.25>, #stepwell.shape<["s0"]>'
    real, one = (
        'tensor<?x4xf32, #stepwell.shape<["s0", 4]>>',
        'tensor<?xf32, #stepwell.shape<["s0"]>>',
    )
    text = method(
        f"%x: tensor<?x4x{held}>",
        f"%xr = quant.dcast %x : tensor<?x4x{held}> to {real}",
        f"%z = aten.mean.dim(%xr, [1]) : ({real}) -> {one}",
        f"%y = quant.qcast %z : {one} to tensor<?x{made}>",
        gives=f"tensor<?x{made}>",
    )
    refused(text, step(pooling.mean), "known only at run time")
