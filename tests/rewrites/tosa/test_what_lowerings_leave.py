"""What the lowerings to TOSA leave alone, each with its reason."""

from typing import Any, cast

from rewrite_cases import cases

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.tosa import (
    block_scaled,
    casts,
    elementwise,
    movement,
    pooling,
    products,
)
from stepwell.translate.lowerings.tosa.indexed import indices
from stepwell.translate.lowerings.tosa.integers.elementwise import int8_add, int8_clamp
from stepwell.translate.lowerings.tosa.integers.functions import int8_function, int8_requantize
from stepwell.translate.lowerings.tosa.integers.layers import int8_convolution, int8_linear
from stepwell.translate.lowerings.tosa.integers.reductions import int8_pool

test_what_lowerings_leave = cases(elementwise)("""
a number known only at run time -> refused: an operand or result is
    %n = sym.constant 2.000000e+00 : f64 : !stepwell.float<"2.0">
    %y = aten.mul.Scalar(%x: f32[3], %n)
an op without operators -> refused: no element type float64
    %y = aten.exp.default(%x: f64[3])
a symbol that no input has -> refused: the size s0 is not a dimension of an input
    %y = aten.exp.default(%x: f32[2*s0])
an unknown size -> refused: not even as an expression
    %y = aten.exp.default(%x: f32[?, 3]) -> f32[?, 3]
rank 7 -> refused: rank 7 is above TOSA's limit
    %y = aten.exp.default(%x: f32[1, 1, 1, 1, 1, 1, 2])
an op without operators -> refused: no empty tensors
    %y = aten.exp.default(%x: f32[0, 3])
a scaled sum -> refused: alpha is 2
    %y = aten.add.Tensor(%x: f32[3], %x, alpha=2)
a factor that is a size -> refused: other is known only at run time
    %n = aten.sym_size.int(%x: f32[s0, 3], 0); %y = aten.mul.Scalar(%x, %n)
two element types -> refused: several dtypes
    %y = aten.mul.Tensor(%x: f32[3], %z: f16[3])
bits of integers -> refused: tosa.logical_and does not take int32
    %y = aten.bitwise_and.Tensor(%x: i32[3], %x)
a sum of truth values -> refused: tosa.add does not take bool
    %y = aten.add.Tensor(%x: i1[3], %x)
a sum of bytes -> refused: tosa.add does not take int8
    %y = aten.add.Tensor(%x: i8[3], %x)
a function of integers -> refused: tosa.exp does not take int32
    %y = aten.exp.default(%x: i32[3])
integers and a fraction -> refused: the operands are integers
    %y = aten.add.Scalar(%x: i32[3], 0.5)
integers and a number past their bits -> refused: 1099511627776 does not fit 32 bits
    %y = aten.add.Scalar(%x: i32[3], 1099511627776)
integers next to a fraction -> refused: compared with a fraction
    %y = aten.gt.Scalar(%x: i32[3], 0.5)
a divisor that is a size -> refused: known only at run time
    %n = aten.sym_size.int(%x: f32[s0, 3], 0); %y = aten.div.Scalar(%x, %n)
a quotient of integers -> refused: integer division
    %y = aten.div.Scalar(%x: i32[3], 2)
a bound that is a size -> refused: a bound is known only at run time
    %n = aten.sym_size.int(%x: f32[s0, 3], 0); %y = aten.clamp.default(%x, %n)
a clamp of integers -> refused: TOSA has no operator for
    %y = aten.clamp.default(%x: i16[3], 0, 1)
a choice of two types -> refused: the operands have several dtypes
    %y = aten.where.self(%m: i1[3], %x: f32[3], %z: f16[3])
""")


test_block_scaled = cases(block_scaled)("""
symbols where none are taken -> refused: is symbolic
    %y = stepwell_mx.quantize_dequantize.default(%x: f32[s0, 32], "fp4e2m1")
""")


test_casts = cases(casts)("""
a truth of small integers -> refused: TOSA cannot compare int8 with 0, which a cast to bool needs
    %y = aten.to.dtype(%x: i8[4], i1)
a cast to integers without a sign -> refused: TOSA has no element type uint8
    %y = aten.to.dtype(%x: f32[4], ui8)
""")


test_indices = cases(indices)("""
indexed axes apart -> refused: are not adjacent
    %y = aten.index.Tensor(%x: f32[4, 2, 4], [%i: i64[3], none, %i])
a mask -> refused: the indices are bool
    %y = aten.index_put.default(%x: f32[4, 2], [%i: i1[4]], %z: f32[2])
rows known only at run time -> refused: an indexed axis of size ['s0'] is symbolic
    %y = aten.index.Tensor(%x: f32[s0, 3], [%i: i64[2]])
added rows -> refused: it does not add
    %y = aten.index_put.default(%x: f32[4, 3], [%i: i64[2]], %z: f32[2, 3], true)
the largest integer -> refused: TOSA has no operator for
    %y = aten.argmax.default(%x: i16[4], 0)
""")


test_movement = cases(movement)("""
every other row -> refused: SLICE has none
    %y = aten.slice.Tensor(%x: f32[6, 3], 0, 0, 6, 2)
rows from a row known only at run time -> refused: the start is known only at run time
    %n = aten.sym_size.int(%x: f32[s0, 3], 0); %y = aten.slice.Tensor(%v: f32[s0 + 4, 3], 0, %n)
rows of two types -> refused: several dtypes
    %y = aten.cat.default([%x: f32[2, 3], %z: f16[2, 3]], 0)
a crop -> refused: the padding is negative
    %y = aten.constant_pad_nd.default(%x: f32[2, 3], [0, -1], 0.0)
""")


test_products = cases(products)("""
a product of vectors -> refused: two of equal batches
    %y = aten.matmul.default(%x: f32[4], %x)
a product with a vector -> refused: two of equal batches
    %y = aten.matmul.default(%x: f32[2, 4], %z: f32[4])
batches that broadcast -> refused: two of equal batches
    %y = aten.matmul.default(%x: f32[1, 2, 4], %z: f32[3, 4, 2])
a transposed volume -> refused: no transposed convolution of three axes
    %y = aten.convolution.default(%x: f32[1, 2, 3, 3, 3], %w: f32[2, 2, 1, 1, 1], none, [1, 1, 1], [0, 0, 0], [1, 1, 1], true, [0, 0, 0], 1)
transposed and dilated -> refused: dilation is not 1
    %y = aten.convolution.default(%x: f32[1, 2, 3, 3], %w: f32[2, 2, 2, 2], none, [1, 1], [0, 0], [2, 2], true, [0, 0], 1)
""")


test_pooling = cases(pooling)("""
a pool without a batch -> refused: the input is not a batch of images
    %y = aten.max_pool2d.default(%x: f32[2, 4, 4], [2, 2], [2, 2])
a dilated pool known only at run time -> refused: dilated windows of a plane of size
    %y = aten.max_pool2d.default(%x: f32[1, 2, s0, 4], [1, 2], [1, 1], [0, 0], [1, 2])
a dilated window around an image -> refused: is entirely in the padding
    %y = aten.max_pool2d.default(%x: f32[1, 2, 3, 5], [2, 1], [1, 1], [1, 0], [4, 1])
another divisor -> refused: the number of elements
    %y = aten.avg_pool2d.default(%x: f32[1, 2, 4, 4], [2, 2], [2, 2], [0, 0], false, true, 3)
""")


test_int8_linear_int8_convolution = cases(
    step(int8_linear),
    step(int8_convolution),
    step(int8_add),
    step(int8_pool),
    step(int8_clamp),
    step(int8_requantize),
    step(int8_function),
)("""
lower-int8-linear: a zero point of 16 bits -> refused: TOSA takes zero points for 8-bit
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<0.25>[3, 4]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i16<0.5:3>[2, 4]); %z = aten.linear.default(%xr, %wr)
    %y = quant.qcast(%z) -> i16<1.0>[2, 3]
lower-int8-linear: a weight's zero point -> refused: the weight has a zero point
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<0.25:1>[3, 4]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %z = aten.linear.default(%xr, %wr)
    %y = quant.qcast(%z) -> i8<2.0>[2, 3]
lower-int8-linear: a scale for each input -> refused: a scale for each input
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<:1, {0.1, 0.2, 0.3, 0.4}>[3, 4]
    %wr = quant.dcast(%w); %xr = quant.dcast(%x: i8<0.5:3>[2, 4])
    %z = aten.linear.default(%xr, %wr); %y = quant.qcast(%z) -> i8<2.0>[2, 3]
lower-int8-convolution: a dilated transposed convolution -> refused: dilation is not 1
    %w = quant.scast(%ws: weight "w" i8[2, 2, 2, 2]) -> i8<0.25>[2, 2, 2, 2]; %wr = quant.dcast(%w)
    %xr = quant.dcast(%x: i8<0.5>[1, 2, 3, 3])
    %z = aten.convolution.default(%xr, %wr, none, [1, 1], [0, 0], [2, 2], true, [0, 0], 1)
    %y = quant.qcast(%z) -> i8<2.0>[1, 2, 5, 5]
lower-int8-convolution: a transposed convolution with a scale for each input -> refused: a scale for each input
    %w = quant.scast(%ws: weight "w" i8[2, 3, 1, 1]) -> i8<:0, {0.25, 0.5}>[2, 3, 1, 1]
    %wr = quant.dcast(%w); %xr = quant.dcast(%x: i8<0.5>[1, 2, 3, 3])
    %z = aten.convolution.default(%xr, %wr, none, [1, 1], [0, 0], [1, 1], true, [0, 0], 1)
    %y = quant.qcast(%z) -> i8<2.0>[1, 3, 3, 3]
lower-int8-convolution: a transposed volume -> refused: no transposed convolution of three axes
    %w = quant.scast(%ws: weight "w" i8[2, 2, 1, 1, 1]) -> i8<0.25>[2, 2, 1, 1, 1]
    %wr = quant.dcast(%w); %xr = quant.dcast(%x: i8<0.5>[1, 2, 3, 3, 3])
    %z = aten.convolution.default(%xr, %wr, none, [1, 1, 1], [0, 0, 0], [1, 1, 1], true, [0, 0, 0], 1)
    %y = quant.qcast(%z) -> i8<2.0>[1, 2, 3, 3, 3]
lower-int8-add: a scaled sum -> refused: alpha is 2
    %xr = quant.dcast(%x: i8<0.5>[4]); %z = aten.add.Tensor(%xr, %xr, alpha=2)
    %y = quant.qcast(%z) -> i8<1.0>[4]
lower-int8-pool: a mean of rows -> refused: the mean is not over the height and width of images within TOSA's pool size
    %xr = quant.dcast(%x: i8<0.5>[2, 4]); %z = aten.mean.dim(%xr, [1])
    %y = quant.qcast(%z) -> i8<1.0>[2]
lower-int8-pool: a dilated pool -> refused: dilation is not 1
    %xr = quant.dcast(%x: i8<0.5>[1, 2, 5, 5])
    %z = aten.max_pool2d.default(%xr, [2, 2], [1, 1], [0, 0], [2, 2])
    %y = quant.qcast(%z) -> i8<1.0>[1, 2, 3, 3]
lower-int8-pool: counted padding -> refused: count_include_pad is set
    %xr = quant.dcast(%x: i8<0.5>[1, 2, 4, 4])
    %z = aten.avg_pool2d.default(%xr, [2, 2], [2, 2], [1, 1])
    %y = quant.qcast(%z) -> i8<1.0>[1, 2, 3, 3]
lower-int8-clamp: a bound known only at run time -> refused: a bound is computed at run time
    %xr = quant.dcast(%x: i8<0.5>[4]); %n = sym.constant 2.000000e+00 : f64 : !stepwell.float<"2.0">
    %z = aten.clamp.default(%xr, %n); %y = quant.qcast(%z) -> i8<1.0>[4]
lower-int8-requantize: a byte without a sign -> refused: the result is quantized to uint8
    %xr = quant.dcast(%x: i8<0.5>[4]); %y = quant.qcast(%xr) -> !quant.uniform<u8:f32, 1.0>[4]
lower-int8-requantize: what no cast gave -> unchanged
    %y = quant.qcast(%x: f32[4]) -> i8<1.0>[4]
lower-int8-function: casts alone -> unchanged
    %xr = quant.dcast(%x: i8<0.5>[4]); %y = quant.qcast(%xr) -> i8<1.0>[4]
""")


def test_an_index_of_no_axis_is_left(programs: Any, written: Any) -> None:
    """torch has types for it, and no numbers."""
    text = written("%x: f32[4]", "%y = aten.index.Tensor(%x, [none]) : (f32[4]) -> f32[4]")
    program, _ = programs(text)
    op = next(op for op in program.method().walk() if op.name == "aten.index.Tensor")
    (rule,) = (rule for rule in indices.RULES if rule.name == "lower-index-to-tosa")
    found: Any = rule().match(cast(Any, op), program)
    assert "are not adjacent" in found.reason
