"""LowerConvolution and the geometry it reads: beyond the documented example, and what is left."""

from typing import Any

import pytest

from stepwell.translate.lowerings.cmsis import layers
from stepwell.translate.lowerings.lowering import step


def conv(
    words: Any,
    method: Any,
    *,
    op: str = "aten.conv2d.default",
    x: str = "1x2x4x4",
    w: str = "3x2x3x3",
    made: str = "1x3x2x2",
    rest: str = "",
    scales: str = "0.25",
    bias: str | None = None,
    out: str = "2.0",
) -> str:
    channels = made.split("x")[1] if made.count("x") > 1 else made.split("x")[0]
    extra = () if bias is None else (bias,)
    shapes = (x, w) if bias is None else (x, w, channels)
    return method(
        f"%x: {words.typed(x, '0.5:3')}",
        words.weight("w", w, scales),
        *extra,
        words.dcast("x", x, "0.5:3"),
        words.call("z", op, "%xr, %wr" + (", %b" if bias else "") + rest, shapes, made),
        words.qcast("z", made, out),
        gives=words.typed(made, out),
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"op": "aten.conv1d.default", "x": "1x2x6", "w": "3x2x3", "made": "1x3x4"},
        {"rest": ", stride=[2, 1], padding=[1, 0]", "made": "1x3x2x2"},
        {"rest": ", padding=[2, 2], dilation=[2, 2]", "made": "1x3x4x4"},
        {"rest": ", groups=2", "x": "1x4x4x4", "w": "6x2x3x3", "made": "1x6x2x2"},
        {"op": "aten.conv2d.padding", "rest": ', padding="same"', "made": "1x3x4x4"},
        {
            "op": "aten.conv2d.padding",
            "rest": ', padding="same"',
            "w": "3x2x2x2",
            "made": "1x3x4x4",
        },
        {"op": "aten.conv2d.padding", "rest": ', padding="valid"'},
        {"scales": ":0, {0.1, 0.2, 0.3}"},
    ],
    ids=["flat", "strided", "dilated", "grouped", "same", "same, even", "valid", "per channel"],
)
def test_each_spelling_is_one_operator(apply: Any, method: Any, words: Any, changed: Any):
    done = apply(conv(words, method, **changed), step(layers.convolution))
    assert done.ops().count("cmsis.quantized_conv2d_nhwc") == 1


def test_a_channel_for_itself_is_depthwise(apply: Any, method: Any, words: Any):
    text = conv(words, method, w="2x1x3x3", made="1x2x2x2", rest=", groups=2")
    assert "cmsis.quantized_depthwise_conv2d_nhwc" in apply(text, step(layers.convolution)).ops()


def test_groups_without_a_bias_are_given_zeros(apply: Any, method: Any, words: Any):
    text = conv(words, method, x="1x4x4x4", w="6x2x3x3", made="1x6x2x2", rest=", groups=2")
    assert "bias = " in apply(text, step(layers.convolution)).text
    assert "bias = " not in apply(conv(words, method), step(layers.convolution)).text


def test_a_transposed_one_is_anothers_business(refused: Any, method: Any, words: Any):
    rest = ", [1, 1], [0, 0], [1, 1], true, [0, 0], 1"
    text = method(
        f"%x: {words.typed('1x2x4x4', '0.5:3')}",
        words.weight("w", "2x3x3x3"),
        words.dcast("x", "1x2x4x4", "0.5:3"),
        '%b = stepwell.weight <"b"> "parameter" : tensor<3xf32>',
        words.call(
            "z",
            "aten.convolution.default",
            f"%xr, %wr, %b{rest}",
            ("1x2x4x4", "2x3x3x3", "3"),
            "1x3x6x6",
        ),
        words.qcast("z", "1x3x6x6"),
        gives=words.typed("1x3x6x6", "1.0"),
    )
    refused(text, step(layers.convolution))


@pytest.mark.parametrize(
    "changed",
    [
        {"x": "2x4x4", "made": "3x2x2"},
        {"op": "aten.conv1d.default", "x": "2x6", "w": "3x2x3", "made": "3x4"},
    ],
    ids=["image", "flat"],
)
def test_an_image_without_a_batch_is_a_batch_of_one(
    apply: Any, method: Any, words: Any, changed: Any
):
    done = apply(conv(words, method, **changed), step(layers.convolution))
    assert "cmsis.quantized_conv2d_nhwc" in done.ops()


def test_three_dimensions_are_refused(refused: Any, method: Any, words: Any):
    rest = ", [1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 1"
    text = conv(
        words,
        method,
        op="aten.convolution.default",
        x="1x2x3x3x3",
        w="3x2x2x2x2",
        made="1x3x2x2x2",
        rest=rest,
        bias='%b = stepwell.weight <"b"> "parameter" : tensor<3xf32>',
    )
    refused(text, step(layers.convolution), "convolve one or two dimensions")


def test_a_scale_for_each_input_channel_is_refused(refused: Any, method: Any, words: Any):
    text = conv(words, method, scales=":1, {0.1, 0.2}")
    refused(text, step(layers.convolution), "symmetrically for each output channel")


def test_a_weight_with_zero_points_is_refused(refused: Any, method: Any, words: Any):
    text = conv(words, method, scales="0.25:1")
    refused(text, step(layers.convolution), "symmetrically for each output channel")


def test_a_shape_known_only_at_run_time_is_refused(refused: Any, method: Any, words: Any):
    def sized(shape: str, rest: str) -> str:
        return f'tensor<?x{shape}x{rest}, #stepwell.shape<["s0", {shape.replace("x", ", ")}]>>'

    held, made = "!quant.uniform<i8:f32, 0.5>", "!quant.uniform<i8:f32, 2.0>"
    text = method(
        f"%x: {sized('2x4x4', held)}",
        words.weight("w", "3x2x3x3"),
        f"%xr = quant.dcast %x : {sized('2x4x4', held)} to {sized('2x4x4', 'f32')}",
        f"%z = aten.conv2d.default(%xr, %wr) : ({sized('2x4x4', 'f32')}, tensor<3x2x3x3xf32>) "
        f"-> {sized('3x2x2', 'f32')}",
        f"%y = quant.qcast %z : {sized('3x2x2', 'f32')} to {sized('3x2x2', made)}",
        gives=sized("3x2x2", made),
    )
    refused(text, step(layers.convolution), "known only at run time")
