"""What the integer rewrites of TOSA leave alone, each with its reason; and what they give."""

from typing import Any

import pytest
from integer_texts import computed
from rewrite_cases import cases

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.tosa.integers.distributions import int8_softmax, softmax_by_table
from stepwell.translate.lowerings.tosa.integers.elementwise import (
    int8_add,
    int8_extremum,
    int8_mul,
    int8_pad,
)
from stepwell.translate.lowerings.tosa.integers.functions import (
    int8_comparison,
    int8_function,
    int8_requantize,
    int16_function,
    int16_scale,
)
from stepwell.translate.lowerings.tosa.integers.layers import int8_linear
from stepwell.translate.lowerings.tosa.integers.reductions import (
    int8_cumsum,
    int8_pool,
    int8_reduction,
    int8_resize,
)
from stepwell.translate.rewrites.tosa.integers.choose_stored_integers import ChooseStoredIntegers
from stepwell.translate.rewrites.tosa.integers.compose_byte_functions import ComposeByteFunctions
from stepwell.translate.rewrites.tosa.integers.fold_quantized_constant import FoldQuantizedConstant
from stepwell.translate.rewrites.tosa.integers.hoist_rescale_over_maximum import (
    HoistRescaleOverMaximum,
)
from stepwell.translate.rewrites.tosa.layout.order import INTEGERS

NUMBER = '%n = stepwell.weight <"n"> "constant" : i8[1]; %t = quant.scast %n : i8[1] to i8<0.1>[1]; %c = quant.dcast %t : i8<0.1>[1] to f32[1]'


test_what_integers_leave = cases(
    step(int8_reduction),
    step(int8_softmax),
    step(int8_requantize),
    step(int8_function),
    step(int16_function),
    step(int8_comparison),
    step(int8_extremum),
    step(int8_mul),
    step(int8_add),
    step(int8_pad),
    step(int8_linear),
    step(int8_cumsum),
    step(int8_resize),
    step(softmax_by_table),
    step(int8_pool),
    ChooseStoredIntegers,
    step(int16_scale),
    FoldQuantizedConstant,
    ComposeByteFunctions,
    HoistRescaleOverMaximum,
)("""
lower-int8-reduction: a mean of images -> refused: the op is a mean of images
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 3, 3]); %z = aten.mean.dim(%xr, [2, 3], true)
    %y = quant.qcast(%z) -> i8<1.0>[1, 2, 1, 1]
lower-int8-reduction: a sum past int32 -> refused: can exceed RESCALE's range
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4194305]); %z = aten.sum.dim_IntList(%xr, [0, 1], true)
    %y = quant.qcast(%z) -> i8<1.0>[1, 1]
lower-int8-reduction: a sum of 16 bits past int32 -> refused: can exceed RESCALE's range
    %xr = quant.dcast(%x: i16<0.5>[32769]); %z = aten.sum.dim_IntList(%xr, [0], true)
    %y = quant.qcast(%z) -> i16<1.0>[1]
lower-int8-reduction: a sum at a fine scale -> refused: can exceed RESCALE's range
    %xr = quant.dcast(%x: i8<0.5:3>[128]); %z = aten.sum.dim_IntList(%xr, [0], true)
    %y = quant.qcast(%z) -> i8<1.0e-06>[1]
lower-int8-softmax: a softmax of 16 bits -> refused: interpolates
    %xr = quant.dcast(%x: i16<0.001>[2, 4]); %z = aten._softmax.default(%xr, 1, false)
    %y = quant.qcast(%z) -> i16<0.0001>[2, 4]
lower-int8-softmax: a softmax of a long row -> refused: needs more than 32 bits
    %xr = quant.dcast(%x: i8<0.5:3>[1, 4096]); %z = aten._softmax.default(%xr, 1, false)
    %y = quant.qcast(%z) -> i8<0.00390625:-128>[1, 4096]
lower-int8-softmax: a softmax at a fine scale -> refused: needs more than 32 bits
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %z = aten._softmax.default(%xr, 1, false)
    %y = quant.qcast(%z) -> i8<0.0001>[2, 4]
lower-int8-softmax: a softmax whose result stays a float -> refused: as a float by
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %y = aten._softmax.default(%xr, 1, false)
lower-int8-requantize: an unsupported form -> refused: beyond the range of RESCALE
    %z = quant.dcast(%x: i8<0.5:3>[4]); %y = quant.qcast(%z) -> i8<1.0e-12>[4]
lower-int8-requantize: a cast of four bits -> refused: quantized to int4
    %z = quant.dcast(%x: i4<0.5>[4]); %y = quant.qcast(%z) -> i8<1.0>[4]
lower-int8-function: a cast of a float -> unchanged
    %y = quant.qcast(%x: f32[4]) -> i8<1.0>[4]
lower-int8-function: a function of bytes to 16 bits -> refused: the result is quantized to int16
    %xr = quant.dcast(%x: i8<0.5>[4]); %z = aten.tanh.default(%xr)
    %y = quant.qcast(%z) -> i16<0.001>[4]
lower-int16-function: a function of 16 bits of any length -> refused: a size is symbolic
    %xr = quant.dcast(%x: i16<0.001>[s0]); %z = aten.tanh.default(%xr)
    %y = quant.qcast(%z) -> i16<0.0005>[s0]
lower-int8-comparison: a comparison of four bits -> refused: quantized to int4
    %a = quant.dcast(%x: i4<0.5>[4]); %b = quant.dcast(%z: i4<0.5>[4]); %y = aten.eq.Tensor(%a, %b)
lower-int8-comparison: four bits next to a number -> refused: quantized to int4
    %a = quant.dcast(%x: i4<0.5>[4]); %y = aten.eq.Scalar(%a, 2.0)
lower-int8-comparison: a comparison of any length -> refused: symbolic
    %a = quant.dcast(%x: i8<0.5>[s0]); %b = quant.dcast(%z: i8<0.5>[s0])
    %y = aten.eq.Tensor(%a, %b)
lower-int8-comparison: 16 bits next to a number -> refused: interpolates
    %a = quant.dcast(%x: i16<0.5>[4]); %y = aten.eq.Scalar(%a, 2.0)
lower-int8-comparison: bytes next to a number that adds an axis -> refused: the number has a shape to which the value is broadcast
    %a = quant.dcast(%x: i8<0.5>[4]); %t = quant.scast(%n: constant i8[1, 1]) -> i8<0.1>[1, 1]
    %c = quant.dcast(%t); %y = aten.eq.Tensor(%a, %c)
lower-int8-comparison: bytes next to several numbers -> refused: several scales
    %a = quant.dcast(%x: i8<0.5>[4]); %t = quant.scast(%n: constant i8[4]) -> i8<0.1>[4]
    %c = quant.dcast(%t); %y = aten.eq.Tensor(%a, %c)
lower-int8-comparison: bytes next to floats -> refused: is not quantized
    %a = quant.dcast(%x: i8<0.5>[4]); %y = aten.eq.Tensor(%a, %b: f32[4])
lower-int8-comparison: bytes of two scales -> refused: several scales
    %a = quant.dcast(%x: i8<0.5>[4]); %b = quant.dcast(%z: i8<0.25>[4]); %y = aten.eq.Tensor(%a, %b)
lower-int8-extremum: a maximum past 14 bits -> refused: a factor of 50000 is beyond
    %a = quant.dcast(%x: i8<0.5>[4]); %b = quant.dcast(%z: i8<0.25>[4])
    %w = aten.maximum.default(%a, %b); %y = quant.qcast(%w) -> i8<1.0e-05>[4]
lower-int8-extremum: an unsupported form -> refused: beyond the range of RESCALE
    %a = quant.dcast(%x: i8<0.5>[4]); %b = quant.dcast(%z: i8<0.25>[4])
    %w = aten.maximum.default(%a, %b); %y = quant.qcast(%w) -> i8<1.0e-12>[4]
lower-int8-mul: an unsupported form -> refused: beyond the range of RESCALE
    %a = quant.dcast(%x: i8<0.5>[4]); %b = quant.dcast(%z: i8<0.25>[4])
    %w = aten.mul.Tensor(%a, %b); %y = quant.qcast(%w) -> i8<1.0e-12>[4]
lower-int8-add: 16 bits of halves -> refused: coarser than 16-bit integers
    %a = quant.dcast(%x: !quant.uniform<i16:f16, 0.5>[4])
    %b = quant.dcast(%z: !quant.uniform<i16:f16, 0.5>[4]); %w = aten.add.Tensor(%a, %b)
    %y = quant.qcast(%w) -> !quant.uniform<i16:f16, 0.5>[4]
lower-int8-pad: a padding that cuts -> refused: the padding is negative
    %xr = quant.dcast(%x: i8<0.5:3>[4]); %z = aten.constant_pad_nd.default(%xr, [-1, 0])
    %y = quant.qcast(%z) -> i8<1.0>[3]
lower-int8-linear: a layer of one row -> refused: the weight is one row
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %t = quant.scast(%n: constant i8[4]) -> i8<0.1>[4]
    %c = quant.dcast(%t); %z = aten.linear.default(%xr, %c); %y = quant.qcast(%z) -> i8<1.0>[2]
lower-int8-reduction: a sum without its axes -> refused: the axes are not kept
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %z = aten.sum.dim_IntList(%xr, [1], false)
    %y = quant.qcast(%z) -> i8<1.0>[2]
lower-int8-cumsum: a running sum of one byte -> refused: a scalar
    %xr = quant.dcast(%x: i8<0.5:3>[]); %z = aten.cumsum.default(%xr, 0)
    %y = quant.qcast(%z) -> i8<1.0>[]
lower-int8-resize: an image of bytes by another scale -> refused: 3 elements times scale 1.0 are not 6
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 3, 3])
    %z = aten.upsample_nearest2d.default(%xr, [6, 6], 1.0, 2.0)
    %y = quant.qcast(%z) -> i8<1.0>[1, 2, 6, 6]
lower-softmax-by-table: a row whose exponentials pass 32 bits -> refused: needs more than 32 bits
    %xr = quant.dcast(%x: i8<0.5:3>[1, 40000]); %z = aten._softmax.default(%xr, 1, false)
    %y = quant.qcast(%z) -> i8<1.0>[1, 40000]
lower-int8-pool: a maximum of one image -> refused: not a batch of images
    %xr = quant.dcast(%x: i8<0.5:3>[1, 4, 4]); %z = aten.max_pool2d.default(%xr, [2, 2])
    %y = quant.qcast(%z) -> i8<1.0>[1, 2, 2]
lower-int8-pool: an average next to padding of an image of any width -> refused: a symbolic size decides
    %xr = quant.dcast(%x: i8<0.5:3>[1, 1, 6, s0])
    %z = aten.avg_pool2d.default(%xr, [3, 3], [1, 1], [1, 1], false, false)
    %y = quant.qcast(%z) -> i8<0.01>[1, 1, 6, s0]
choose-stored-integers: bytes that are added in places -> refused: adds to existing elements
    %a = quant.dcast(%x: i8<0.5>[4]); %b = quant.dcast(%z: i8<0.5>[2])
    %y = aten.index_put.default(%a, [%i: i64[2]], %b, true)
choose-stored-integers: bytes of two scales put into floats -> refused: as a float by
    %a = quant.dcast(%x: i8<0.5>[4]); %b = quant.dcast(%z: i8<0.25>[2])
    %y = aten.index_put.default(%a, [%i: i64[2]], %b)
choose-stored-integers: bytes put past 14 bits -> refused: a factor of 50000 is beyond
    %a = quant.dcast(%x: i8<0.5>[4]); %b = quant.dcast(%z: i8<0.25>[2])
    %w = aten.index_put.default(%a, [%i: i64[2]], %b); %y = quant.qcast(%w) -> i8<1.0e-05>[4]
lower-int16-function: a function of two values of 16 bits -> unchanged
    %xr = quant.dcast(%x: i16<0.001>[4]); %z = aten.cumsum.default(%xr, 0)
    %y = quant.qcast(%z) -> i16<0.0005>[4]
lower-int16-function: casts of 16 bits alone -> unchanged
    %z = quant.dcast(%x: i16<0.5>[4]); %y = quant.qcast(%z) -> i16<1.0>[4]
lower-int16-function: a function of 16 bits that adds an axis -> unchanged
    %xr = quant.dcast(%x: i16<0.001>[4])
    %t = quant.scast(%n: constant "n#ones" i16[1, 1]) -> i16<0.1>[1, 1]; %c = quant.dcast(%t)
    %z = aten.add.Tensor(%xr, %c); %y = quant.qcast(%z) -> i16<0.0005>[1, 4]
lower-int16-function: a function of 8 bits to 16 -> refused: a value is quantized to
    %xr = quant.dcast(%x: i8<0.5>[4]); %z = aten.tanh.default(%xr)
    %y = quant.qcast(%z) -> i16<0.001>[4]
lower-int16-function: a function of 16 bits to 8 -> refused: a value is quantized to
    %xr = quant.dcast(%x: i16<0.001>[4]); %z = aten.tanh.default(%xr)
    %y = quant.qcast(%z) -> i8<0.5>[4]
lower-int16-function: a function of 16 bits with a zero point -> refused: zero point
    %xr = quant.dcast(%x: i16<0.001>[4]); %z = aten.tanh.default(%xr)
    %y = quant.qcast(%z) -> i16<0.001:3>[4]
lower-int16-scale: a product of 8 bits with a number -> unchanged
    %xr = quant.dcast(%x: i8<0.5:3>[4]); %t = quant.scast(%n: constant i8[1]) -> i8<0.1>[1]
    %c = quant.dcast(%t); %z = aten.mul.Tensor(%xr, %c); %y = quant.qcast(%z) -> i8<1.0>[4]
lower-int16-scale: a product of two values of 16 bits -> unchanged
    %xr = quant.dcast(%x: i16<0.001>[4]); %z = aten.mul.Tensor(%xr, %xr)
    %y = quant.qcast(%z) -> i16<0.0005>[4]
lower-int16-scale: a product with a number that adds an axis -> unchanged
    %xr = quant.dcast(%x: i16<0.001>[4])
    %t = quant.scast(%n: constant "n#ones" i16[1, 1]) -> i16<0.1>[1, 1]; %c = quant.dcast(%t)
    %z = aten.mul.Tensor(%xr, %c); %y = quant.qcast(%z) -> i16<0.0005>[1, 4]
lower-int16-scale: a product of 16 bits with zero -> refused: is not positive
    %xr = quant.dcast(%x: i16<0.001>[4])
    %t = quant.scast(%n: constant "n#zeros" i16[1]) -> i16<0.1>[1]; %c = quant.dcast(%t)
    %z = aten.mul.Tensor(%xr, %c); %y = quant.qcast(%z) -> i16<0.0005>[4]
lower-int16-scale: an unsupported form -> refused: outside RESCALE's range
    %xr = quant.dcast(%x: i16<0.5>[4])
    %t = quant.scast(%n: constant "n#ones" i16[1]) -> i16<0.1>[1]; %c = quant.dcast(%t)
    %z = aten.mul.Tensor(%xr, %c); %y = quant.qcast(%z) -> i16<1.0e-06>[4]
lower-int16-scale: a product of 16 bits that stays a float -> refused: as a float by
    %xr = quant.dcast(%x: i16<0.001>[4])
    %t = quant.scast(%n: constant "n#ones" i16[1]) -> i16<0.1>[1]; %c = quant.dcast(%t)
    %y = aten.mul.Tensor(%xr, %c)
lower-int8-mul: a square -> refused: which a TABLE computes
    %xr = quant.dcast(%x: i8<0.5:3>[4]); %z = aten.mul.Tensor(%xr, %xr)
    %y = quant.qcast(%z) -> i8<1.0>[4]
lower-int8-add: a sum with a number -> refused: which a TABLE computes
    %xr = quant.dcast(%x: i8<0.5:3>[4]); %t = quant.scast(%n: constant i8[1]) -> i8<0.1>[1]
    %c = quant.dcast(%t); %z = aten.add.Tensor(%xr, %c); %y = quant.qcast(%z) -> i8<1.0>[4]
fold-quantized-constant: a constant that is computed of an input -> unchanged
    %xr = quant.dcast(%x: i8<0.5:3>[4]); %z = aten.neg.default(%xr)
    %y = quant.qcast(%z) -> i8<1.0>[4]
compose-byte-functions: a table of what was rescaled from 32 bits -> unchanged
    %r = tosa.rescale(%x: i32[2, 4], %m: constant "m#ones" i32[1], %s: constant "s#ones" i8[1], %z_i32: constant "z_i32#zeros" i32[1], %z_i8: constant "z_i8#zeros" i8[1], input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i8[2, 4]
    %y = tosa.table(%r, %t: constant "t#ones" i8[256])
compose-byte-functions: a rescale to 32 bits of a table -> unchanged
    %r = tosa.table(%x: i8[2, 4], %t: constant "t#ones" i8[256])
    %y = tosa.rescale(%r, %m: constant "m#ones" i32[1], %s: constant "s#ones" i8[1], %z_i8: constant "z_i8#zeros" i8[1], %z_i32: constant "z_i32#zeros" i32[1], input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i32[2, 4]
compose-byte-functions: a scale for each channel -> unchanged
    %r = tosa.rescale(%x: i8[2, 4], %mm: constant "mm#ones" i32[4], %ss: constant "ss#ones" i8[4], %z_i8: constant "z_i8#zeros" i8[1], %z_i8, input_unsigned=false, output_unsigned=false, per_channel=true, rounding_mode="SINGLE_ROUND", scale32=true)
    %y = tosa.table(%r, %t: constant "t#ones" i8[256])
compose-byte-functions: a table computed at run time -> unchanged
    %r = tosa.rescale(%x: i8[2, 4], %m: constant "m#ones" i32[1], %s: constant "s#ones" i8[1], %z_i8: constant "z_i8#zeros" i8[1], %z_i8, input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true)
    %y = tosa.table(%r, %t: i8[256])
hoist-rescale-over-maximum: a maximum that is rescaled otherwise -> refused: nothing rescales the row by the same numbers
    %g = tosa.reduce_max(%x: i8[2, 4], axis=1)
    %r = tosa.rescale(%x, %m: constant "m#ones" i32[1], %s: constant "s#ones" i8[1], %z_i8: constant "z_i8#zeros" i8[1], %z_i32: constant "z_i32#zeros" i32[1], input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i32[2, 4]
    %q = tosa.rescale(%g, %k: constant "k#zeros" i32[1], %s, %z_i8, %z_i32, input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i32[2, 1]
    %y = tosa.sub(%r, %q)
hoist-rescale-over-maximum: a row that is rescaled to other bits -> refused: nothing rescales the row by the same numbers
    %g = tosa.reduce_max(%x: i8[2, 4], axis=1)
    %h = tosa.rescale(%x, %m: constant "m#ones" i32[1], %s: constant "s#ones" i8[1], %z_i8: constant "z_i8#zeros" i8[1], %z_i16: constant "z16#zeros" i16[1], input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i16[2, 4]
    %q = tosa.rescale(%g, %m, %s, %z_i8, %z_i32: constant "z_i32#zeros" i32[1], input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i32[2, 1]
    %r = tosa.cast(%h) -> i32[2, 4]; %y = tosa.sub(%r, %q)
hoist-rescale-over-maximum: a row that is rounded otherwise -> refused: nothing rescales the row by the same numbers
    %g = tosa.reduce_max(%x: i8[2, 4], axis=1)
    %q = tosa.rescale(%g, %m: constant "m#ones" i32[1], %s: constant "s#ones" i8[1], %z_i8: constant "z_i8#zeros" i8[1], %z_i32: constant "z_i32#zeros" i32[1], input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i32[2, 1]
    %r = tosa.rescale(%x, %m, %s, %z_i8, %z_i32, input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="DOUBLE_ROUND", scale32=true) -> i32[2, 4]
    %y = tosa.sub(%r, %q)
hoist-rescale-over-maximum: a row that only moves -> refused: nothing rescales the row by the same numbers
    %g = tosa.reduce_max(%x: i8[2, 4], axis=1)
    %q = tosa.rescale(%g, %m: constant "m#ones" i32[1], %s: constant "s#ones" i8[1], %z_i8: constant "z_i8#zeros" i8[1], %z_i32: constant "z_i32#zeros" i32[1], input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i32[2, 1]
    %r = tosa.cast(%x) -> i32[2, 4]; %y = tosa.sub(%r, %q)
hoist-rescale-over-maximum: factors computed at run time -> refused: nothing rescales the row by the same numbers
    %g = tosa.reduce_max(%x: i8[2, 4], axis=1)
    %r = tosa.rescale(%x, %k: i32[1], %s: constant "s#ones" i8[1], %z_i8: constant "z_i8#zeros" i8[1], %z_i32: constant "z_i32#zeros" i32[1], input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i32[2, 4]
    %q = tosa.rescale(%g, %l: i32[1], %s, %z_i8, %z_i32, input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i32[2, 1]
    %y = tosa.sub(%r, %q)
hoist-rescale-over-maximum: a maximum that is read as it is -> refused: another op reads the maximum as it is
    %g = tosa.reduce_max(%x: i8[2, 4], axis=1)
    %r = tosa.rescale(%x, %m: constant "m#ones" i32[1], %s: constant "s#ones" i8[1], %z_i8: constant "z_i8#zeros" i8[1], %z_i32: constant "z_i32#zeros" i32[1], input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i32[2, 4]
    %q = tosa.rescale(%g, %m, %s, %z_i8, %z_i32, input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i32[2, 1]
    %p = tosa.rescale(%g, %m, %s, %z_i8, %z_i8, input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true)
    %f = tosa.sub(%r, %q); %y = tosa.concat([%p, %g], axis=1)
hoist-rescale-over-maximum: a rescale of no maximum -> unchanged
    %y = tosa.rescale(%x: i8[2, 4], %m: constant "m#ones" i32[1], %s: constant "s#ones" i8[1], %z_i8: constant "z_i8#zeros" i8[1], %z_i32: constant "z_i32#zeros" i32[1], input_unsigned=false, output_unsigned=false, per_channel=false, rounding_mode="SINGLE_ROUND", scale32=true) -> i32[2, 4]
lower-int8-reduction: a sum -> quant.scast, tosa.rescale, tosa.reduce_sum, tosa.rescale, quant.scast
    %xr = quant.dcast(%x: i8<0.5:3>[3, 4]); %z = aten.sum.dim_IntList(%xr, [1], true)
    %y = quant.qcast(%z) -> i8<1.0>[3, 1]
lower-int8-reduction: a mean of two axes -> quant.scast, tosa.rescale, tosa.reduce_sum, tosa.reduce_sum, tosa.rescale, quant.scast
    %xr = quant.dcast(%x: i8<0.5:3>[3, 4]); %z = aten.mean.dim(%xr, [0, 1], true)
    %y = quant.qcast(%z) -> i8<1.0>[1, 1]
lower-int8-reduction: a maximum -> quant.scast, tosa.reduce_max, quant.scast
    %xr = quant.dcast(%x: i8<0.5:3>[3, 4]); %z = aten.amax.default(%xr, [1], true)
    %y = quant.qcast(%z) -> i8<0.5:3>[3, 1]
lower-int8-reduction: a minimum at another scale -> quant.scast, tosa.reduce_min, tosa.rescale, quant.scast
    %xr = quant.dcast(%x: i8<0.5:3>[3, 4]); %z = aten.amin.default(%xr, [-2], true)
    %y = quant.qcast(%z) -> i8<0.25:-7>[1, 4]
lower-int8-reduction: a sum of 16 bits -> quant.scast, tosa.rescale, tosa.reduce_sum, tosa.rescale, quant.scast
    %xr = quant.dcast(%x: i16<0.5>[3, 4]); %z = aten.sum.dim_IntList(%xr, [1], true)
    %y = quant.qcast(%z) -> i16<0.75>[3, 1]
lower-int8-pool: an average of windows whose sizes have no small multiple -> quant.scast, tosa.transpose, tosa.avg_pool2d, tosa.rescale, tosa.transpose, quant.scast
    %xr = quant.dcast(%x: i8<0.5:3>[1, 1, 12, 12])
    %z = aten.avg_pool2d.default(%xr, [13, 13], [1, 1], [6, 6], false, false)
    %y = quant.qcast(%z) -> i8<0.01:3>[1, 1, 12, 12]
lower-int8-pool: an average of 16 bits -> quant.scast, tosa.transpose, tosa.avg_pool2d, tosa.rescale, tosa.transpose, quant.scast
    %xr = quant.dcast(%x: i16<0.5>[1, 1, 6, 6])
    %z = aten.avg_pool2d.default(%xr, [2, 2], [1, 1], [0, 0], false, false)
    %y = quant.qcast(%z) -> i16<0.01>[1, 1, 5, 5]
lower-int8-pool: an average of an image of any width rounds once -> quant.scast, tosa.transpose, tosa.depthwise_conv2d, tosa.rescale, tosa.transpose, quant.scast
    %xr = quant.dcast(%x: i8<0.5>[1, 1, 6, s0]); %z = aten.avg_pool2d.default(%xr, [2, 2], [1, 1])
    %y = quant.qcast(%z) -> i8<0.01>[1, 1, 5, s0 - 1]
""")


test_what_integers_leave_unrun = cases(step(int8_linear), ChooseStoredIntegers, run=False)("""
lower-int8-linear: a layer of rows of no stated number -> refused: not even as an expression
    %xr = quant.dcast(%x: i8<0.5:3>[?, 4]) -> f32[?, 4]
    %t = quant.scast(%n: constant i8[3, 4]) -> i8<0.1>[3, 4]; %c = quant.dcast(%t)
    %z = aten.linear.default(%xr, %c) -> f32[?, 3]; %y = quant.qcast(%z) -> i8<1.0>[?, 3]
choose-stored-integers: rows chosen of no stated number -> refused: not even as an expression
    %a = quant.dcast(%x: i8<0.5>[s0, 4])
    %y = aten.gather.default(%a, 0, %i: i64[?, 2]) -> f32[?, 2]
""")


@pytest.mark.parametrize("function", ["mul.Tensor", "sub.Tensor"])
def test_a_function_of_one_value_and_numbers_is_one_table(
    apply: Any, written: Any, function: str
) -> None:
    line = f"{NUMBER}; %z = aten.{function}(%xr, %c) : (f32[4], f32[1]) -> f32[4]"
    done = apply(written(*computed(line, "4", "4")), *INTEGERS)
    assert [op for op in done.ops() if "scast" not in op] == ["tosa.table"]


def test_a_constant_operand_is_rescaled_ahead_of_time(apply: Any, written: Any) -> None:
    weights = (
        NUMBER.replace("i8[1]", "i8[4]")
        .replace("f32[1]", "f32[4]")
        .replace("i8<0.1>[1]", "i8<0.1>[4]")
    )
    line = f"{weights}; %z = aten.add.Tensor(%xr, %c) : (f32[2, 4], f32[4]) -> f32[2, 4]"
    done = apply(written(*computed(line, "2, 4", "2, 4")), *INTEGERS)
    assert [op for op in done.ops() if "scast" not in op] == ["tosa.rescale", "tosa.add", "tosa.rescale"]  # fmt: skip
