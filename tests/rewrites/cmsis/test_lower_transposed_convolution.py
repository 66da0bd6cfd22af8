"""LowerTransposedConvolution: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.lowerings.cmsis import layers
from stepwell.translate.lowerings.lowering import step


def up(
    words: Any,
    method: Any,
    rest: str = "",
    *,
    op: str = "aten.conv_transpose2d.input",
    x: str = "1x2x3x3",
    w: str = "2x3x3x3",
    made: str = "1x3x5x5",
    scales: str = "0.25",
) -> str:
    return method(
        f"%x: {words.typed(x, '0.5:3')}",
        words.weight("w", w, scales),
        words.dcast("x", x, "0.5:3"),
        words.call("z", op, f"%xr, %wr{rest}", (x, w), made),
        words.qcast("z", made, "2.0"),
        gives=words.typed(made, "2.0"),
    )


@pytest.mark.parametrize(
    "rest, made, scales",
    [
        ("", "1x3x5x5", ":1, {0.1, 0.2, 0.3}"),
        (", stride=[2, 2]", "1x3x7x7", "0.25"),
        (", stride=[2, 2], padding=[1, 1]", "1x3x5x5", "0.25"),
        (", groups=2", "1x6x5x5", ":1, {0.1, 0.2, 0.3}"),
        (", dilation=[2, 1], padding=[1, 0]", "1x3x5x5", "0.25"),
        (", stride=[2, 2], output_padding=[1, 1]", "1x3x8x8", "0.25"),
        (", stride=[2, 2], padding=[1, 2], output_padding=[1, 1]", "1x3x6x4", "0.25"),
    ],
    ids=["per channel", "strided", "cropped", "groups", "dilated", "longer", "longer, cropped"],
)
def test_each_is_one_operator(
    apply: Any, method: Any, words: Any, rest: str, made: str, scales: str
):
    done = apply(
        up(words, method, rest, made=made, scales=scales), step(layers.transposed_convolution)
    )
    assert "cmsis.quantized_transpose_conv2d_nhwc" in done.ops()


def test_a_line_is_an_image_one_wide(apply: Any, method: Any, words: Any):
    op, rest = "aten.conv_transpose1d.default", ", stride=[2], output_padding=[1]"
    text = up(words, method, rest, op=op, x="1x2x5", w="2x3x3", made="1x3x12")
    done = apply(text, step(layers.transposed_convolution))
    assert "cmsis.quantized_transpose_conv2d_nhwc" in done.ops()


@pytest.mark.parametrize(
    "changed, reason",
    [
        ({"rest": ", stride=[1, 4]", "w": "2x3x3x2", "made": "1x3x5x10"}, "scratch"),
        ({"scales": ":0, {0.1, 0.2}"}, "symmetrically for each output channel"),
        ({"scales": "0.25:1"}, "symmetrically for each output channel"),
        ({"x": "2x3x3", "made": "3x5x5"}, "batches of images"),
    ],
    ids=["wide stride", "input scales", "zero", "no batch"],
)
def test_what_the_kernel_has_not_is_refused(
    refused: Any, method: Any, words: Any, changed: Any, reason: str
):
    refused(up(words, method, **changed), step(layers.transposed_convolution), reason)


def test_an_ordinary_convolution_is_anothers_business(refused: Any, method: Any, words: Any):
    text = method(
        f"%x: {words.typed('1x2x4x4', '0.5:3')}",
        words.weight("w", "3x2x3x3"),
        words.dcast("x", "1x2x4x4", "0.5:3"),
        '%b = stepwell.weight <"b"> "parameter" : tensor<3xf32>',
        words.call(
            "z",
            "aten.convolution.default",
            "%xr, %wr, %b, [1, 1], [0, 0], [1, 1], false, [0, 0], 1",
            ("1x2x4x4", "3x2x3x3", "3"),
            "1x3x2x2",
        ),
        words.qcast("z", "1x3x2x2"),
        gives=words.typed("1x3x2x2", "1.0"),
    )
    refused(text, step(layers.transposed_convolution))


def test_a_shape_known_only_at_run_time_is_refused(refused: Any, method: Any, words: Any):
    def sized(shape: str, rest: str) -> str:
        return f'tensor<?x{shape}x{rest}, #stepwell.shape<["s0", {shape.replace("x", ", ")}]>>'

    held, made = "!quant.uniform<i8:f32, 0.5>", "!quant.uniform<i8:f32, 2.0>"
    text = method(
        f"%x: {sized('2x3x3', held)}",
        words.weight("w", "2x3x3x3"),
        f"%xr = quant.dcast %x : {sized('2x3x3', held)} to {sized('2x3x3', 'f32')}",
        f"%z = aten.conv_transpose2d.input(%xr, %wr) : ({sized('2x3x3', 'f32')}, "
        f"tensor<2x3x3x3xf32>) -> {sized('3x5x5', 'f32')}",
        f"%y = quant.qcast %z : {sized('3x5x5', 'f32')} to {sized('3x5x5', made)}",
        gives=sized("3x5x5", made),
    )
    refused(text, step(layers.transposed_convolution), "known ahead of time")
