"""LowerTransposedConvolution: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest
from rewrite_cases import cases

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


test_lower_transposed_convolution = cases(
    layers,
    """
lower-transposed-convolution: a line is an image one wide -> contains cmsis.quantized_transpose_conv2d_nhwc
    %w = quant.scast(%ws: weight "w" i8[2, 3, 3]) -> i8<0.25>[2, 3, 3]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 5])
    %z = aten.conv_transpose1d.default(%xr, %wr, none, [2], output_padding=[1])
    %y = quant.qcast(%z) -> i8<2.0>[1, 3, 12]
lower-transposed-convolution: an ordinary convolution is anothers business -> unchanged
    %w = quant.scast(%ws: weight "w" i8[3, 2, 3, 3]) -> i8<0.25>[3, 2, 3, 3]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
    %z = aten.convolution.default(%xr, %wr, %b: weight f32[3], [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = quant.qcast(%z) -> i8<1.0>[1, 3, 2, 2]
lower-transposed-convolution: a shape known only at run time -> refused: known ahead of time
    %w = quant.scast(%ws: weight "w" i8[2, 3, 3, 3]) -> i8<0.25>[2, 3, 3, 3]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5>[s0, 2, 3, 3]); %z = aten.conv_transpose2d.input(%xr, %wr)
    %y = quant.qcast(%z) -> i8<2.0>[s0, 3, 5, 5]
""",
)


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
