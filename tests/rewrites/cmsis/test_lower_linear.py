"""LowerLinear: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.lowerings.cmsis import layers

test_lower_linear = cases(
    layers,
    """
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
lower-linear: rows scaled apart need a known shape -> refused: has a fixed shape
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<:0, {0.1, 0.2, 0.3}>[3, 4]
    %wr = quant.dcast(%w); %xr = quant.dcast(%x: i8<0.5>[s0, 4]); %z = aten.linear.default(%xr, %wr)
    %y = quant.qcast(%z) -> i8<1.0>[s0, 3]
""",
)
