"""Pools and means as operators of CMSIS-NN, and what its kernels do not compute."""

import torch
from eager import exported
from rewrite_cases import cases
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import stepwell
from stepwell.translate.lowerings.cmsis import pooling
from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

test_pooling = cases(pooling)("""
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
lower-mean: dimensions apart -> refused: dimensions [0, 2] of [2, 3, 4] are empty, or not adjacent
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
lower-pooling: what the kernels lack -> refused: finer than its input's
    %xr = quant.dcast(%x: i8<0.5:3>[2, 2, 4, 4]); %z = aten.avg_pool2d.default(%xr, [2, 2])
    %y = quant.qcast(%z) -> i8<0.125>[2, 2, 2, 2]
lower-pooling: no batch -> refused: batches of images
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4, 4]); %z = aten.avg_pool2d.default(%xr, [2, 2])
    %y = quant.qcast(%z) -> i8<0.5:3>[2, 2, 2]
lower-pooling: what the kernels lack -> refused: divisor_override is set
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
    %z = aten.avg_pool2d.default(%xr, [2, 2], divisor_override=3)
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 2, 2]
lower-pooling: counted, ceil -> refused: count_include_pad and ceil_mode are both set
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
    %z = aten.avg_pool2d.default(%xr, [3, 3], [2, 2], [1, 1], true)
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 3, 3]
lower-pooling: what the kernels lack -> refused: dilation
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
    %z = aten.max_pool2d.default(%xr, [2, 2], [1, 1], [0, 0], [2, 2])
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 2, 2]
lower-pooling: what the kernels lack -> refused: equal windows
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4]); %z = aten.adaptive_avg_pool2d.default(%xr, [3, 3])
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 3, 3]
lower-pooling: indices that are used -> refused: indices of the maxima are used
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 4, 4])
    %z, %i = aten.max_pool2d_with_indices.default(%xr, [2, 2])
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 2, 2]; return %y, %i
lower-pooling: a shape known only at run time -> refused: run time
    %xr = quant.dcast(%x: i8<0.5>[s0, 2, 4, 4]); %z = aten.avg_pool2d.default(%xr, [2, 2])
    %y = quant.qcast(%z) -> i8<0.5>[s0, 2, 2, 2]
extreme-of-axis: a maximum whose places are unused has none -> quant.dcast, aten.amax.default
    %a = quant.dcast(%x: i8<0.5:3>[2, 4]); %y, %i = aten.max.dim(%a, 1); return %y
extreme-of-axis: a maximum of floats keeps its form -> unchanged
    %y, %i = aten.max.dim(%a: f32[2, 4], 1); return %y
extreme-of-axis: a maximum whose places are read keeps them -> refused: the indices of the maxima are used
    %a = quant.dcast(%x: i8<0.5:3>[2, 4]); %y, %i = aten.max.dim(%a, 1); %z = aten.abs.default(%i)
""")


def test_a_mean_for_memory_takes_the_scratch_of_one_channel() -> None:
    """The same integers; an MVE depthwise kernel asks 496 bytes for each of six frames."""
    torch.manual_seed(0)
    x = (torch.randn(1, 6, 16),)
    prepared = prepare_pt2e(
        exported(lambda x: x.relu().mean(1), *x).module(check_guards=False), CortexMQuantizer()
    )
    prepared(*x)
    program = torch.export.export(convert_pt2e(prepared), x)
    fast, small = (
        stepwell.lower(program, "cortex-m55", optimize=goal) for goal in ("speed", "memory")
    )
    assert torch.equal(fast.run(*x)[0], small.run(*x)[0])
    scratch = [
        [op.number("scratch") for op in made.program.module.walk() if "scratch" in op.properties]
        for made in (fast, small)
    ]
    assert scratch[0] == [6 * 496] and scratch[1] == [64]
