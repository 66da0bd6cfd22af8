"""Layers as operators of CMSIS-NN, and what its kernels do not compute."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.lowerings.cmsis import layers
from stepwell.translate.lowerings.lowering import step

test_layers = cases(layers)("""
lower-linear: addmm is a linear layer over the transposed weight -> quant.scast, cmsis.quantized_linear
    %w = quant.scast(%ws: weight "w" i8[4, 3]) -> i8<0.25>[4, 3]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %z = aten.addmm.default(%b: weight f32[3], %xr, %wr)
    %y = quant.qcast(%z) -> i8<1.0>[2, 3]
lower-linear: a scaled sum -> refused: both must be 1
    - %w = quant.scast(%ws: weight "w" i8[4, 3]) -> i8<0.25>[4, 3]; %wr = quant.dcast(%w)
      %xr = quant.dcast(%x: i8<0.5:3>[2, 4])
      %z = aten.addmm.default(%b: weight f32[3], %xr, %wr, beta=2)
      %y = quant.qcast(%z) -> i8<1.0>[2, 3]
    - %w = quant.scast(%ws: weight "w" i8[4, 3]) -> i8<0.25>[4, 3]; %wr = quant.dcast(%w)
      %xr = quant.dcast(%x: i8<0.5:3>[2, 4])
      %z = aten.addmm.default(%b: weight f32[3], %xr, %wr, alpha=2)
      %y = quant.qcast(%z) -> i8<1.0>[2, 3]
lower-linear: a matrix that is added is no bias -> refused: not one number per output
    %w = quant.scast(%ws: weight "w" i8[4, 3]) -> i8<0.25>[4, 3]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %z = aten.addmm.default(%b: weight f32[2, 3], %xr, %wr)
    %y = quant.qcast(%z) -> i8<1.0>[2, 3]
lower-linear: a product with a batch is none of its business -> unchanged
    %w = quant.scast(%ws: weight "w" i8[2, 4, 3]) -> i8<0.25>[2, 4, 3]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5:3>[2, 5, 4]); %z = aten.matmul.default(%xr, %wr)
    %y = quant.qcast(%z) -> i8<1.0>[2, 5, 3]
lower-linear: a scale for each input -> refused: a scale for each input
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<:1, {0.1, 0.2, 0.3, 0.4}>[3, 4]
    %wr = quant.dcast(%w); %xr = quant.dcast(%x: i8<0.5:3>[2, 4])
    %z = aten.linear.default(%xr, %wr); %y = quant.qcast(%z) -> i8<1.0>[2, 3]
lower-linear: a zero point for each row -> refused: a zero point for each row
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<:0, {0.1:1, 0.2, 0.3}>[3, 4]
    %wr = quant.dcast(%w); %xr = quant.dcast(%x: i8<0.5:3>[2, 4])
    %z = aten.linear.default(%xr, %wr); %y = quant.qcast(%z) -> i8<1.0>[2, 3]
lower-linear: a scale for each row is a convolution -> quant.scast, aten.view.default, quant.scast, quant.scast, cmsis.quantized_conv2d_nhwc, quant.scast, aten.view.default, quant.scast
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<:0, {0.1, 0.2, 0.3}>[3, 4]
    %wr = quant.dcast(%w); %xr = quant.dcast(%x: i8<0.5:3>[2, 4])
    %z = aten.linear.default(%xr, %wr); %y = quant.qcast(%z) -> i8<1.0>[2, 3]
lower-linear: rows scaled apart need a known shape -> refused: per-channel weights need a convolution
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<:0, {0.1, 0.2, 0.3}>[3, 4]
    %wr = quant.dcast(%w); %xr = quant.dcast(%x: i8<0.5>[s0, 4]); %z = aten.linear.default(%xr, %wr)
    %y = quant.qcast(%z) -> i8<1.0>[s0, 3]
lower-matmul: products of any rank lower -> contains cmsis.quantized_batch_matmul
    - %ar = quant.dcast(%a: i8<0.5>[2, 3]); %br = quant.dcast(%b: i8<0.25:1>[3, 4])
      %z = aten.matmul.default(%ar, %br); %y = quant.qcast(%z) -> i8<2.0>[2, 4]
    - %ar = quant.dcast(%a: i8<0.5>[2, 2, 3, 4]); %br = quant.dcast(%b: i8<0.25:1>[2, 2, 4, 5])
      %z = aten.matmul.default(%ar, %br); %y = quant.qcast(%z) -> i8<2.0>[2, 2, 3, 5]
lower-matmul: products of any rank lower -> cmsis.transpose, cmsis.quantized_batch_matmul
    %ar = quant.dcast(%a: i8<0.5>[5, 2, 3]); %br = quant.dcast(%b: i8<0.25:1>[5, 3, 4])
    %z = aten.matmul.default(%ar, %br); %y = quant.qcast(%z) -> i8<2.0>[5, 2, 4]
lower-matmul: vectors and broadcast batches -> refused: broadcasts no batch
    - %ar = quant.dcast(%a: i8<0.5>[3]); %br = quant.dcast(%b: i8<0.25:1>[3, 4])
      %z = aten.matmul.default(%ar, %br); %y = quant.qcast(%z) -> i8<2.0>[4]
    - %ar = quant.dcast(%a: i8<0.5>[2, 3]); %br = quant.dcast(%b: i8<0.25:1>[3])
      %z = aten.matmul.default(%ar, %br); %y = quant.qcast(%z) -> i8<2.0>[2]
    - %ar = quant.dcast(%a: i8<0.5>[5, 2, 3]); %br = quant.dcast(%b: i8<0.25:1>[3, 4])
      %z = aten.matmul.default(%ar, %br); %y = quant.qcast(%z) -> i8<2.0>[5, 2, 4]
lower-matmul: a constant right side is a linear layers business -> unchanged
    %b = quant.scast(%bs: weight "b" i8[3, 4]) -> i8<0.25>[3, 4]; %br = quant.dcast(%b)
    %ar = quant.dcast(%a: i8<0.5>[2, 3]); %z = aten.mm.default(%ar, %br)
    %y = quant.qcast(%z) -> i8<1.0>[2, 4]
lower-matmul: a dot product that can overflow -> refused: can overflow int32
    %ar = quant.dcast(%a: i8<0.5>[1, 33026]); %br = quant.dcast(%b: i8<0.25:1>[33026, 1])
    %z = aten.matmul.default(%ar, %br); %y = quant.qcast(%z) -> i8<2.0>[1, 1]
lower-matmul: a result scale far too fine -> refused: int32
    %ar = quant.dcast(%a: i8<0.5>[2, 3]); %br = quant.dcast(%b: i8<0.25:1>[3, 4])
    %z = aten.matmul.default(%ar, %br); %y = quant.qcast(%z) -> i8<1.0e-06>[2, 4]
lower-matmul: a shape known only at run time -> refused: known only at run time
    %ar = quant.dcast(%a: i8<0.5>[s0, 4]); %t = aten.permute.default(%ar, [1, 0])
    %z = aten.mm.default(%ar, %t); %y = quant.qcast(%z) -> i8<4.0>[s0, s0]
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
""")


test_convolution_of_groups = cases(step(layers.convolution))("""
groups without a bias are given zeros -> writes bias =
    %w = quant.scast(%ws: weight "w" i8[6, 2, 3, 3]) -> i8<0.25>[6, 2, 3, 3]
    %wr = quant.dcast(%w); %xr = quant.dcast(%x: i8<0.5:3>[1, 4, 4, 4])
    %z = aten.conv2d.default(%xr, %wr, none, groups=2); %y = quant.qcast(%z) -> i8<2.0>[1, 6, 2, 2]
one group without a bias has none -> omits bias =
    %w = quant.scast(%ws: weight "w" i8[3, 2, 3, 3]) -> i8<0.25>[3, 2, 3, 3]
    %wr = quant.dcast(%w); %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
    %z = aten.conv2d.default(%xr, %wr); %y = quant.qcast(%z) -> i8<2.0>[1, 3, 2, 2]
""")


def up(
    rest: str = "",
    *,
    x: str = "1, 2, 3, 3",
    w: str = "2, 3, 3, 3",
    made: str = "1, 3, 5, 5",
    scales: str = "0.25",
) -> str:
    return f"""
        %w = quant.scast(%ws: weight "w" i8[{w}]) -> i8<{scales}>[{w}]; %wr = quant.dcast(%w)
        %xr = quant.dcast(%x: i8<0.5:3>[{x}])
        %z = aten.conv_transpose2d.input(%xr, %wr{rest}); %y = quant.qcast(%z) -> i8<2.0>[{made}]
    """


@pytest.mark.parametrize(
    ("rest", "made", "scales"),
    [
        ("", "1, 3, 5, 5", ":1, {0.1, 0.2, 0.3}"),
        (", stride=[2, 2]", "1, 3, 7, 7", "0.25"),
        (", stride=[2, 2], padding=[1, 1]", "1, 3, 5, 5", "0.25"),
        (", groups=2", "1, 6, 5, 5", ":1, {0.1, 0.2, 0.3}"),
        (", dilation=[2, 1], padding=[1, 0]", "1, 3, 5, 5", "0.25"),
        (", stride=[2, 2], output_padding=[1, 1]", "1, 3, 8, 8", "0.25"),
        (", stride=[2, 2], padding=[1, 2], output_padding=[1, 1]", "1, 3, 6, 4", "0.25"),
    ],
    ids=["per channel", "strided", "cropped", "groups", "dilated", "longer", "longer, cropped"],
)
def test_transposed_convolution_is_one_operator(apply: Any, rest: str, made: str, scales: str):
    done = apply(up(rest, made=made, scales=scales), step(layers.transposed_convolution))
    assert "cmsis.quantized_transpose_conv2d_nhwc" in done.ops()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"rest": ", stride=[1, 4]", "w": "2, 3, 3, 2", "made": "1, 3, 5, 10"}, "scratch"),
        ({"scales": ":0, {0.1, 0.2}"}, "symmetrically for each output channel"),
        ({"scales": "0.25:1"}, "symmetrically for each output channel"),
        ({"x": "2, 3, 3", "made": "3, 5, 5"}, "batches of images"),
    ],
    ids=["wide stride", "input scales", "zero", "no batch"],
)
def test_transposed_convolution_without_kernel_is_refused(refused: Any, changed: Any, reason: str):
    refused(up(**changed), step(layers.transposed_convolution), reason)
