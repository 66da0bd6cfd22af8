"""LowerMean: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.lowerings.cmsis import pooling

test_lower_mean = cases(
    pooling,
    """
lower-mean: each place of the mean has its operator -> quant.scast, aten.view.default, quant.scast, quant.scast, cmsis.quantized_linear, quant.scast, aten.view.default, quant.scast
    %xr = quant.dcast(%x: i8<0.5>[2, 3, 4]); %z = aten.mean.dim(%xr, [-1])
    %y = quant.qcast(%z) -> i8<0.25>[2, 3]
lower-mean: each place of the mean has its operator -> quant.scast, aten.view.default, quant.scast, cmsis.quantized_avg_pool2d_nhwc, quant.scast, aten.view.default, quant.scast
    %xr = quant.dcast(%x: i8<0.5>[2, 3, 4]); %z = aten.mean.dim(%xr, [1])
    %y = quant.qcast(%z) -> i8<0.5>[2, 4]
lower-mean: each place of the mean has its operator -> cmsis.transpose, quant.scast, aten.view.default, quant.scast, quant.scast, cmsis.quantized_depthwise_conv2d_nhwc, quant.scast, aten.view.default, quant.scast
    %xr = quant.dcast(%x: i8<0.5>[2, 3, 4]); %z = aten.mean.dim(%xr, [1])
    %y = quant.qcast(%z) -> i8<0.25>[2, 4]
lower-mean: a sum is a layer of ones -> quant.scast, aten.view.default, quant.scast, quant.scast, cmsis.quantized_linear, quant.scast, aten.view.default, quant.scast
    %xr = quant.dcast(%x: i8<0.5>[2, 3, 4]); %z = aten.sum.dim_IntList(%xr, [-1])
    %y = quant.qcast(%z) -> i8<2.0>[2, 3]
lower-mean: a sum is a layer of ones -> cmsis.transpose, quant.scast, aten.view.default, quant.scast, quant.scast, cmsis.quantized_depthwise_conv2d_nhwc, quant.scast, aten.view.default, quant.scast
    %xr = quant.dcast(%x: i8<0.5>[2, 3, 4]); %z = aten.sum.dim_IntList(%xr, [1])
    %y = quant.qcast(%z) -> i8<2.0>[2, 4]
lower-mean: a result scale far too fine -> refused: past int32
    %xr = quant.dcast(%x: i8<0.5>[2, 3, 4]); %z = aten.mean.dim(%xr, [-1])
    %y = quant.qcast(%z) -> i8<1.0e-08>[2, 3]
lower-mean: dimensions apart -> refused: do not lie next to each other
    %xr = quant.dcast(%x: i8<0.5>[2, 3, 4]); %z = aten.mean.dim(%xr, [0, 2])
    %y = quant.qcast(%z) -> i8<0.5>[3]
lower-mean: another element type -> refused: changes the element type
    %xr = quant.dcast(%x: i8<0.5>[2, 3]); %z = aten.mean.dim(%xr, [1], dtype=f32)
    %y = quant.qcast(%z) -> i8<0.25>[2]
lower-mean: a sum that can overflow -> refused: can overflow int32
    %xr = quant.dcast(%x: i8<0.5>[8421504]); %z = aten.mean.dim(%xr, [0])
    %y = quant.qcast(%z) -> i8<0.25>[]
lower-mean: a shape known only at run time -> refused: known only at run time
    %xr = quant.dcast(%x: i8<0.5>[s0, 4]); %z = aten.mean.dim(%xr, [1])
    %y = quant.qcast(%z) -> i8<0.25>[s0]
""",
)
