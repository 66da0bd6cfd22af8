"""Depthwise convolutions over many channels: parts from their layer on, and what stays whole."""

from typing import Any

import pytest

from stepwell.dialects.xnnpack.costs import COSTS
from stepwell.dialects.xnnpack.spatial import DepthwiseConvolution2d
from stepwell.translate.rewrites.xnnpack.convolutions.split_wide_depthwise import SplitWideDepthwise


def block(
    method: Any,
    channels: int,
    *,
    size: int = 24,
    window: int = 5,
    between: str = "",
    behind: str = "",
    image: str = "%i",
    fields: str = "",
) -> str:
    """A pointwise layer of 8 channels, what stands `between`, and a depthwise window."""
    x, i = (f"tensor<1x{size}x{size}x{count}xf32>" for count in (8, channels))
    layer, bias = f"tensor<{channels}x1x1x8xf32>", f"tensor<{channels}xf32>"
    filter = f"tensor<1x{window}x{window}x{channels}xf32>"
    padding = [window // 2] * 4
    numbers = "padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1], groups=1"
    return method(
        f"%x: {x}",
        f'%l = stepwell.weight <"l#positive"> "parameter" : {layer}',
        f'%b = stepwell.weight <"b#positive"> "parameter" : {bias}',
        f'%w = stepwell.weight <"w#positive"> "parameter" : {filter}',
        f"%i = xnnpack.convolution_2d(%x, %l, %b, {numbers}{fields}) : ({x}, {layer}, {bias}) -> {i}",
        *([between.replace("IMAGE", i)] if between else []),
        f"%d = xnnpack.depthwise_convolution_2d({image}, %w, %b, padding={padding}, stride=[1, 1], dilation=[1, 1]{fields}) : ({i}, {filter}, {bias}) -> {i}",
        behind.replace("IMAGE", i) or f"%y = xnnpack.abs(%d) : ({i}) -> {i}",
        gives=i,
    )


SILU = (
    "%s = xnnpack.sigmoid(%i) : (IMAGE) -> IMAGE\n"
    "%m = xnnpack.multiply(%i, %s) : (IMAGE, IMAGE) -> IMAGE"
)
BY_CHANNEL = (
    '%k = stepwell.weight <"k#positive"> "parameter" : tensor<1x1x1x400xf32>\n'
    "%m = xnnpack.multiply(%i, %k) : (IMAGE, tensor<1x1x1x400xf32>) -> IMAGE"
)
BY_PIXEL = (
    '%k = stepwell.weight <"k#positive"> "parameter" : tensor<24x24x1xf32>\n'
    "%m = xnnpack.multiply(%i, %k) : (IMAGE, tensor<24x24x1xf32>) -> IMAGE"
)


@pytest.mark.parametrize("between", [SILU, BY_CHANNEL, BY_PIXEL])
def test_the_layer_and_what_stands_between_are_cut_with_it(
    between: str, apply: Any, method: Any
) -> None:
    done = apply(block(method, 400, between=between, image="%m"), SplitWideDepthwise())
    assert done.count == 1
    names = done.ops()
    assert names.count("xnnpack.convolution_2d") == names.count(DepthwiseConvolution2d.name) == 2
    assert "xnnpack.static_slice" not in names and "xnnpack.concatenate2" in names


def test_a_long_chain_is_walked_once(apply: Any, method: Any) -> None:
    chain = [SILU.replace("%s", "%s0").replace("%m", "%m0")]
    for n in range(1, 40):  # Each reads the one before it twice: 2⁴⁰ ways lead to the layer.
        silu = SILU.replace("%i", f"%m{n - 1}").replace("%s", f"%s{n}").replace("%m =", f"%m{n} =")
        chain.append(silu)
    done = apply(block(method, 400, between="\n".join(chain), image="%m39"), SplitWideDepthwise())
    assert done.ops().count("xnnpack.sigmoid") == 80


def test_parts_stay_at_hand_and_are_as_even_as_tiles_allow(apply: Any, method: Any) -> None:
    done = apply(block(method, 700), SplitWideDepthwise())
    parts = [op for op in done.program.module.walk() if isinstance(op, DepthwiseConvolution2d)]
    channels = [int(op.channels) for op in parts]
    assert sum(channels) == 700 and max(channels) <= COSTS.channels_at_hand(25)
    assert channels == [256, 256, 188]


def test_ranges_stay_with_each_part(apply: Any, method: Any) -> None:
    text = block(method, 400, fields=", output_min=0.0, output_max=6.0")
    done = apply(text, SplitWideDepthwise())
    assert done.text.count("output_max=6.0") == 4


def test_a_filter_that_stays_at_hand_stays_whole(apply: Any, method: Any) -> None:
    most = COSTS.channels_at_hand(25) // 32 * 32
    assert apply(block(method, most), SplitWideDepthwise()).count == 0
    assert apply(block(method, 400, window=3), SplitWideDepthwise()).count == 0
    assert apply(block(method, 400, window=7), SplitWideDepthwise()).count == 0


def test_an_image_that_something_else_reads_is_not_made_twice(apply: Any, method: Any) -> None:
    read = "%y = xnnpack.add(%d, %i) : (IMAGE, IMAGE) -> IMAGE"
    done = apply(block(method, 400, behind=read), SplitWideDepthwise())
    assert done.count == 0 and "slices of it cost" in done.reasons[0]


def test_an_image_from_outside_is_not_sliced(apply: Any, method: Any) -> None:
    between = "%m = xnnpack.max_pooling_2d(%i, kernel=[3, 3], stride=[1, 1], padding=[1, 1, 1, 1], dilation=[1, 1]) : (IMAGE) -> IMAGE"
    done = apply(block(method, 400, between=between, image="%m"), SplitWideDepthwise())
    assert done.count == 0 and "slices of it cost" in done.reasons[0]


def test_a_small_image_is_not_worth_more_nodes(apply: Any, method: Any) -> None:
    done = apply(block(method, 400, size=1), SplitWideDepthwise())
    assert done.count == 0 and "joining" in done.reasons[0]


def test_an_image_of_symbolic_size_stays_whole(apply: Any, method: Any) -> None:
    image = 'tensor<?x24x24x400xf32, #stepwell.shape<["n", 24, 24, 400]>>'
    filter = "tensor<1x5x5x400xf32>"
    text = method(
        f"%x: {image}",
        f'%w = stepwell.weight <"w"> "parameter" : {filter}',
        f"%y = xnnpack.depthwise_convolution_2d(%x, %w, padding=[2, 2, 2, 2], stride=[1, 1], dilation=[1, 1]) : ({image}, {filter}) -> {image}",
        gives=image,
    )
    done = apply(text, SplitWideDepthwise())
    assert done.count == 0 and "symbolic" in done.reasons[0]
