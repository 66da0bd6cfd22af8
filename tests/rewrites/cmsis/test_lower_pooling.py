"""LowerPooling: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.lowerings.cmsis import pooling

test_lower_pooling = cases(
    pooling,
    """
lower-pooling: each spelling is one operator -> cmsis.transpose, cmsis.quantized_max_pool2d_nhwc, cmsis.transpose
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4]); %z = aten.max_pool2d.default(%xr, [2, 2])
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 2, 2]
lower-pooling: each spelling is one operator -> cmsis.transpose, cmsis.pad, cmsis.quantized_max_pool2d_nhwc, cmsis.transpose
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
    %z = aten.max_pool2d.default(%xr, [3, 3], [2, 2], [0, 0], [1, 1], true)
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 2, 2]
lower-pooling: each spelling is one operator -> quant.scast, aten.view.default, quant.scast, cmsis.transpose, cmsis.quantized_max_pool2d_nhwc, cmsis.transpose, quant.scast, aten.view.default, quant.scast
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 6]); %z = aten.max_pool1d.default(%xr, [2])
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 3]
lower-pooling: each spelling is one operator -> quant.scast, aten.view.default, quant.scast, cmsis.transpose, cmsis.quantized_avg_pool2d_nhwc, cmsis.transpose, quant.scast, aten.view.default, quant.scast
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 6]); %z = aten.avg_pool1d.default(%xr, [2])
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 3]
lower-pooling: each spelling is one operator -> cmsis.transpose, cmsis.quantized_avg_pool2d_nhwc, cmsis.transpose
    - %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4]); %z = aten.adaptive_avg_pool2d.default(%xr, [2, 1])
      %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 2, 1]
    - %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
      %z = aten.avg_pool2d.default(%xr, [3, 3], [2, 2], [1, 1], true, false)
      %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 3, 3]
lower-pooling: padding that counts is a pad -> cmsis.transpose, cmsis.pad, cmsis.quantized_avg_pool2d_nhwc, cmsis.transpose
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
    %z = aten.avg_pool2d.default(%xr, [2, 2], [2, 2], [1, 1])
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 3, 3]
lower-pooling: a finer average is a depthwise convolution -> cmsis.transpose, quant.scast, cmsis.quantized_depthwise_conv2d_nhwc, cmsis.transpose
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4]); %z = aten.avg_pool2d.default(%xr, [2, 2])
    %y = quant.qcast(%z) -> i8<0.125>[1, 2, 2, 2]
lower-pooling: what the kernels have not -> refused: finer than its input's
    %xr = quant.dcast(%x: i8<0.5:3>[2, 2, 4, 4]); %z = aten.avg_pool2d.default(%xr, [2, 2])
    %y = quant.qcast(%z) -> i8<0.125>[2, 2, 2, 2]
lower-pooling: no batch -> refused: batches of images
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4, 4]); %z = aten.avg_pool2d.default(%xr, [2, 2])
    %y = quant.qcast(%z) -> i8<0.5:3>[2, 2, 2]
lower-pooling: what the kernels have not -> refused: divisor is overridden
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
    %z = aten.avg_pool2d.default(%xr, [2, 2], divisor_override=3)
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 2, 2]
lower-pooling: counted, ceil -> refused: padding counts
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
    %z = aten.avg_pool2d.default(%xr, [3, 3], [2, 2], [1, 1], true)
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 3, 3]
lower-pooling: what the kernels have not -> refused: dilation
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
    %z = aten.max_pool2d.default(%xr, [2, 2], [1, 1], [0, 0], [2, 2])
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 2, 2]
lower-pooling: what the kernels have not -> refused: equal windows
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4]); %z = aten.adaptive_avg_pool2d.default(%xr, [3, 3])
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 3, 3]
lower-pooling: indices that are used -> refused: indices of the maxima are used
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
    %z, %i = aten.max_pool2d_with_indices.default(%xr, [2, 2])
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 2, 2]; return %y, %i
lower-pooling: a shape known only at run time -> refused: run time
    %xr = quant.dcast(%x: i8<0.5>[s0, 2, 4, 4]); %z = aten.avg_pool2d.default(%xr, [2, 2])
    %y = quant.qcast(%z) -> i8<0.5>[s0, 2, 2, 2]
""",
)
