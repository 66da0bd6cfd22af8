"""LowerConvolution and the geometry it reads: beyond the documented example, and what is left."""

from typing import Any

from rewrite_cases import cases

from stepwell.translate.lowerings.cmsis import layers
from stepwell.translate.lowerings.lowering import step

test_lower_convolution = cases(
    layers,
    """
lower-convolution: each spelling is one operator -> quant.scast, aten.view.default, quant.scast, cmsis.transpose, quant.scast, cmsis.quantized_conv2d_nhwc, cmsis.transpose, quant.scast, aten.view.default, quant.scast
    %w = quant.scast(%ws: weight "w" i8[3, 2, 3]) -> i8<0.25>[3, 2, 3]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 6]); %z = aten.conv1d.default(%xr, %wr)
    %y = quant.qcast(%z) -> i8<2.0>[1, 3, 4]
lower-convolution: each spelling is one operator -> cmsis.transpose, quant.scast, cmsis.quantized_conv2d_nhwc, cmsis.transpose
    - %w = quant.scast(%ws: weight "w" i8[3, 2, 3, 3]) -> i8<0.25>[3, 2, 3, 3]; %wr = quant.dcast(%w)
      %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
      %z = aten.conv2d.default(%xr, %wr, none, [2, 1], [1, 0])
      %y = quant.qcast(%z) -> i8<2.0>[1, 3, 2, 2]
    - %w = quant.scast(%ws: weight "w" i8[3, 2, 3, 3]) -> i8<0.25>[3, 2, 3, 3]; %wr = quant.dcast(%w)
      %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
      %z = aten.conv2d.default(%xr, %wr, none, padding=[2, 2], dilation=[2, 2])
      %y = quant.qcast(%z) -> i8<2.0>[1, 3, 4, 4]
    - %w = quant.scast(%ws: weight "w" i8[6, 2, 3, 3]) -> i8<0.25>[6, 2, 3, 3]; %wr = quant.dcast(%w)
      %xr = quant.dcast(%x: i8<0.5:3>[1, 4, 4, 4]); %z = aten.conv2d.default(%xr, %wr, none, groups=2)
      %y = quant.qcast(%z) -> i8<2.0>[1, 6, 2, 2]
    - %w = quant.scast(%ws: weight "w" i8[3, 2, 3, 3]) -> i8<0.25>[3, 2, 3, 3]; %wr = quant.dcast(%w)
      %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
      %z = aten.conv2d.padding(%xr, %wr, none, padding="same")
      %y = quant.qcast(%z) -> i8<2.0>[1, 3, 4, 4]
    - %w = quant.scast(%ws: weight "w" i8[3, 2, 3, 3]) -> i8<0.25>[3, 2, 3, 3]; %wr = quant.dcast(%w)
      %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
      %z = aten.conv2d.padding(%xr, %wr, none, padding="valid")
      %y = quant.qcast(%z) -> i8<2.0>[1, 3, 2, 2]
lower-convolution: same, even -> cmsis.transpose, cmsis.pad, quant.scast, cmsis.quantized_conv2d_nhwc, cmsis.transpose
    %w = quant.scast(%ws: weight "w" i8[3, 2, 2, 2]) -> i8<0.25>[3, 2, 2, 2]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
    %z = aten.conv2d.padding(%xr, %wr, none, padding="same")
    %y = quant.qcast(%z) -> i8<2.0>[1, 3, 4, 4]
lower-convolution: per channel -> cmsis.transpose, quant.scast, cmsis.quantized_conv2d_nhwc, cmsis.transpose
    %w = quant.scast(%ws: weight "w" i8[3, 2, 3, 3]) -> i8<:0, {0.1, 0.2, 0.3}>[3, 2, 3, 3]
    %wr = quant.dcast(%w); %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
    %z = aten.conv2d.default(%xr, %wr); %y = quant.qcast(%z) -> i8<2.0>[1, 3, 2, 2]
lower-convolution: a channel for itself is depthwise -> cmsis.transpose, quant.scast, cmsis.quantized_depthwise_conv2d_nhwc, cmsis.transpose
    %w = quant.scast(%ws: weight "w" i8[2, 1, 3, 3]) -> i8<0.25>[2, 1, 3, 3]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4]); %z = aten.conv2d.default(%xr, %wr, none, groups=2)
    %y = quant.qcast(%z) -> i8<2.0>[1, 2, 2, 2]
lower-convolution: a transposed one is anothers business -> unchanged
    %w = quant.scast(%ws: weight "w" i8[2, 3, 3, 3]) -> i8<0.25>[2, 3, 3, 3]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
    %z = aten.convolution.default(%xr, %wr, %b: weight f32[3], [1, 1], [0, 0], [1, 1], true, [0, 0], 1)
    %y = quant.qcast(%z) -> i8<1.0>[1, 3, 6, 6]
lower-convolution: an image without a batch is a batch of one -> quant.scast, aten.view.default, quant.scast, cmsis.transpose, quant.scast, cmsis.quantized_conv2d_nhwc, cmsis.transpose, quant.scast, aten.view.default, quant.scast
    - %w = quant.scast(%ws: weight "w" i8[3, 2, 3, 3]) -> i8<0.25>[3, 2, 3, 3]; %wr = quant.dcast(%w)
      %xr = quant.dcast(%x: i8<0.5:3>[2, 4, 4]); %z = aten.conv2d.default(%xr, %wr)
      %y = quant.qcast(%z) -> i8<2.0>[3, 2, 2]
    - %w = quant.scast(%ws: weight "w" i8[3, 2, 3]) -> i8<0.25>[3, 2, 3]; %wr = quant.dcast(%w)
      %xr = quant.dcast(%x: i8<0.5:3>[2, 6]); %z = aten.conv1d.default(%xr, %wr)
      %y = quant.qcast(%z) -> i8<2.0>[3, 4]
lower-convolution: three dimensions -> refused: convolve one or two dimensions
    %w = quant.scast(%ws: weight "w" i8[3, 2, 2, 2, 2]) -> i8<0.25>[3, 2, 2, 2, 2]
    %wr = quant.dcast(%w); %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 3, 3, 3])
    %z = aten.convolution.default(%xr, %wr, %b: weight f32[3], [1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 1)
    %y = quant.qcast(%z) -> i8<2.0>[1, 3, 2, 2, 2]
lower-convolution: a scale for each input channel -> refused: symmetrically for each output channel
    %w = quant.scast(%ws: weight "w" i8[3, 2, 3, 3]) -> i8<:1, {0.1, 0.2}>[3, 2, 3, 3]
    %wr = quant.dcast(%w); %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
    %z = aten.conv2d.default(%xr, %wr); %y = quant.qcast(%z) -> i8<2.0>[1, 3, 2, 2]
lower-convolution: a weight with zero points -> refused: symmetrically for each output channel
    %w = quant.scast(%ws: weight "w" i8[3, 2, 3, 3]) -> i8<0.25:1>[3, 2, 3, 3]
    %wr = quant.dcast(%w); %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
    %z = aten.conv2d.default(%xr, %wr); %y = quant.qcast(%z) -> i8<2.0>[1, 3, 2, 2]
lower-convolution: a shape known only at run time -> refused: known only at run time
    %w = quant.scast(%ws: weight "w" i8[3, 2, 3, 3]) -> i8<0.25>[3, 2, 3, 3]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5>[s0, 2, 4, 4]); %z = aten.conv2d.default(%xr, %wr)
    %y = quant.qcast(%z) -> i8<2.0>[s0, 3, 2, 2]
""",
)


def test_groups_without_a_bias_are_given_zeros(apply: Any):
    assert (
        "bias = "
        in apply(
            """
        %w = quant.scast(%ws: weight "w" i8[6, 2, 3, 3]) -> i8<0.25>[6, 2, 3, 3]
        %wr = quant.dcast(%w)
        %xr = quant.dcast(%x: i8<0.5:3>[1, 4, 4, 4])
        %z = aten.conv2d.default(%xr, %wr, none, groups=2)
        %y = quant.qcast(%z) -> i8<2.0>[1, 6, 2, 2]
        """,
            step(layers.convolution),
        ).text
    )
    assert (
        "bias = "
        not in apply(
            """
        %w = quant.scast(%ws: weight "w" i8[3, 2, 3, 3]) -> i8<0.25>[3, 2, 3, 3]
        %wr = quant.dcast(%w)
        %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
        %z = aten.conv2d.default(%xr, %wr)
        %y = quant.qcast(%z) -> i8<2.0>[1, 3, 2, 2]
        """,
            step(layers.convolution),
        ).text
    )
