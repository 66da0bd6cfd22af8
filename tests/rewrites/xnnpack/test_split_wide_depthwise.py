"""Depthwise convolutions over many channels: parts from their layer on, and what stays whole."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.dialects.xnnpack.costs import COSTS
from stepwell.dialects.xnnpack.spatial import DepthwiseConvolution2d
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.xnnpack.convolutions.split_wide_depthwise import (
    split_wide_depthwise,
)


def block(channels: int, between: str = "", image: str = "%i") -> str:
    """A pointwise layer of 8 channels, what stands `between`, and a depthwise window."""
    return f"""
        %i = xnnpack.convolution_2d(%x: f32[1, 24, 24, 8], %l: weight "l#positive" f32[{channels}, 1, 1, 8],
            %b: weight "b#positive" f32[{channels}], padding=[0, 0, 0, 0], stride=[1, 1],
            dilation=[1, 1], groups=1)
        {between}
        %d = xnnpack.depthwise_convolution_2d({image}, %w: weight "w#positive" f32[1, 5, 5, {channels}],
            %b, padding=[2, 2, 2, 2], stride=[1, 1], dilation=[1, 1])
        %y = xnnpack.abs(%d)
    """


SILU = "%s = xnnpack.sigmoid(%i); %m = xnnpack.multiply(%i, %s)"
BY_CHANNEL = '%m = xnnpack.multiply(%i, %k: weight "k#positive" f32[1, 1, 1, 400])'
BY_PIXEL = '%m = xnnpack.multiply(%i, %k: weight "k#positive" f32[24, 24, 1])'


@pytest.mark.parametrize("between", [SILU, BY_CHANNEL, BY_PIXEL])
def test_the_layer_and_what_stands_between_are_cut_with_it(between: str, apply: Any) -> None:
    done = apply(block(400, between, "%m"), step(split_wide_depthwise))
    assert done.count == 1
    names = done.ops()
    assert names.count("xnnpack.convolution_2d") == names.count(DepthwiseConvolution2d.name) == 2
    assert "xnnpack.static_slice" not in names and "xnnpack.concatenate2" in names


def test_a_long_chain_is_walked_once(apply: Any) -> None:
    chain = [SILU.replace("%s", "%s0").replace("%m", "%m0")]
    for n in range(1, 40):  # Each reads the one before it twice: 2⁴⁰ ways lead to the layer.
        silu = SILU.replace("%i", f"%m{n - 1}").replace("%s", f"%s{n}").replace("%m =", f"%m{n} =")
        chain.append(silu)
    done = apply(block(400, "; ".join(chain), "%m39"), step(split_wide_depthwise))
    assert done.ops().count("xnnpack.sigmoid") == 80


def test_parts_stay_at_hand_and_are_as_even_as_tiles_allow(apply: Any) -> None:
    done = apply(block(700), step(split_wide_depthwise))
    parts = [op for op in done.program.module.walk() if isinstance(op, DepthwiseConvolution2d)]
    channels = [int(op.channels) for op in parts]
    assert sum(channels) == 700 and max(channels) <= COSTS.channels_at_hand(25)
    assert channels == [256, 256, 188]


def test_ranges_stay_with_each_part(apply: Any) -> None:
    text = block(400).replace("dilation=[1, 1]", "dilation=[1, 1], output_min=0.0, output_max=6.0")
    assert apply(text, step(split_wide_depthwise)).text.count("output_max=6.0") == 4


test_split_wide_depthwise = cases(step(split_wide_depthwise))("""
a filter that stays at hand stays whole -> applied 0 times
    - %i = xnnpack.convolution_2d(%x: f32[1, 24, 24, 8], %l: weight "l#positive" f32[256, 1, 1, 8], %b: weight "b#positive" f32[256], groups=1, padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1])
      %d = xnnpack.depthwise_convolution_2d(%i, %w: weight "w#positive" f32[1, 5, 5, 256], %b, padding=[2, 2, 2, 2], stride=[1, 1], dilation=[1, 1])
      %y = xnnpack.abs(%d)
    - %i = xnnpack.convolution_2d(%x: f32[1, 24, 24, 8], %l: weight "l#positive" f32[400, 1, 1, 8], %b: weight "b#positive" f32[400], groups=1, padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1])
      %d = xnnpack.depthwise_convolution_2d(%i, %w: weight "w#positive" f32[1, 3, 3, 400], %b, padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1])
      %y = xnnpack.abs(%d)
    - %i = xnnpack.convolution_2d(%x: f32[1, 24, 24, 8], %l: weight "l#positive" f32[400, 1, 1, 8], %b: weight "b#positive" f32[400], groups=1, padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1])
      %d = xnnpack.depthwise_convolution_2d(%i, %w: weight "w#positive" f32[1, 7, 7, 400], %b, padding=[3, 3, 3, 3], stride=[1, 1], dilation=[1, 1])
      %y = xnnpack.abs(%d)
an image that something else reads is not made twice -> refused: slicing the image costs
    %i = xnnpack.convolution_2d(%x: f32[1, 24, 24, 8], %l: weight "l#positive" f32[400, 1, 1, 8], %b: weight "b#positive" f32[400], groups=1, padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1])
    %d = xnnpack.depthwise_convolution_2d(%i, %w: weight "w#positive" f32[1, 5, 5, 400], %b, padding=[2, 2, 2, 2], stride=[1, 1], dilation=[1, 1])
    %y = xnnpack.add(%d, %i)
an image from outside is not sliced -> refused: slicing the image costs
    %i = xnnpack.convolution_2d(%x: f32[1, 24, 24, 8], %l: weight "l#positive" f32[400, 1, 1, 8], %b: weight "b#positive" f32[400], groups=1, padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1])
    %m = xnnpack.max_pooling_2d(%i, kernel=[3, 3], padding=[1, 1, 1, 1], stride=[1, 1], dilation=[1, 1])
    %d = xnnpack.depthwise_convolution_2d(%m, %w: weight "w#positive" f32[1, 5, 5, 400], %b, padding=[2, 2, 2, 2], stride=[1, 1], dilation=[1, 1])
    %y = xnnpack.abs(%d)
a small image is not worth more nodes -> refused: joining
    %i = xnnpack.convolution_2d(%x: f32[1, 1, 1, 8], %l: weight "l#positive" f32[400, 1, 1, 8], %b: weight "b#positive" f32[400], groups=1, padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1])
    %d = xnnpack.depthwise_convolution_2d(%i, %w: weight "w#positive" f32[1, 5, 5, 400], %b, padding=[2, 2, 2, 2], stride=[1, 1], dilation=[1, 1])
    %y = xnnpack.abs(%d)
an image of symbolic size stays whole -> refused: symbolic
    %y = xnnpack.depthwise_convolution_2d(%x: f32[n, 24, 24, 400], %w: weight f32[1, 5, 5, 400], padding=[2, 2, 2, 2], stride=[1, 1], dilation=[1, 1])
""")
