"""Functions as operators and tables of CMSIS-NN, and what they are not."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.lowerings.cmsis import borders, carried, elementwise, pooling
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.cmsis.layout import merge_movement

test_elementwise = cases(elementwise, merge_movement, borders)("""
lower-softmax: another dimension is transposed to be the last -> cmsis.transpose, cmsis.softmax, cmsis.transpose
    %xr = quant.dcast(%x: i8<0.5>[2, 3, 4]); %z = aten.softmax.int(%xr, 1)
    %y = quant.qcast(%z) -> i8<0.00390625:-128>[2, 3, 4]
lower-softmax: a coarser result is a table after it -> cmsis.softmax, cmsis.quantized_activation
    %xr = quant.dcast(%x: i8<0.5>[2, 8]); %z = aten.softmax.int(%xr, -1)
    %y = quant.qcast(%z) -> i8<0.01:-128>[2, 8]
lower-softmax: the longest row that cannot overflow lowers -> applied once
    %xr = quant.dcast(%x: i8<0.5>[1, 511]); %z = aten.softmax.int(%xr, -1)
    %y = quant.qcast(%z) -> i8<0.00390625:-128>[1, 511]
lower-softmax: a longer row -> refused: 511 is the longest safe one
    %xr = quant.dcast(%x: i8<0.5>[1, 512]); %z = aten.softmax.int(%xr, -1)
    %y = quant.qcast(%z) -> i8<0.00390625:-128>[1, 512]
lower-softmax: a finer result -> refused: finer
    %xr = quant.dcast(%x: i8<0.5>[2, 8]); %z = aten.softmax.int(%xr, -1)
    %y = quant.qcast(%z) -> i8<0.003:-128>[2, 8]
lower-softmax: a dimension within five cannot be turned -> refused: 4
    %xr = quant.dcast(%x: i8<0.5>[1, 2, 2, 3, 2]); %z = aten.softmax.int(%xr, 3)
    %y = quant.qcast(%z) -> i8<0.00390625:-128>[1, 2, 2, 3, 2]
lower-softmax: a row of unknown length -> refused: run time
    %xr = quant.dcast(%x: i8<0.5>[s0]); %z = aten.softmax.int(%xr, -1)
    %y = quant.qcast(%z) -> i8<0.00390625:-128>[s0]
tabulate + compose-tables: a chain through a quantization within is one table -> cmsis.quantized_activation
    %xr = quant.dcast(%x: i8<0.5>[4]); %a = aten.tanh.default(%xr)
    %b = quant.qcast(%a) -> i8<0.01>[4]; %br = quant.dcast(%b); %z = aten.neg.default(%br)
    %y = quant.qcast(%z) -> i8<0.25>[4]
tabulate: above a value that cannot be followed the table begins there -> quant.qcast, cmsis.quantized_activation
    %x = quant.qcast(%f: f32[4]) -> i8<0.5>[4]; %xr = quant.dcast(%x); %z = aten.tanh.default(%xr)
    %y = quant.qcast(%z) -> i8<0.01>[4]
tabulate: a change of scale alone is a table -> cmsis.quantized_activation
    %xr = quant.dcast(%x: i8<0.5>[4]); %y = quant.qcast(%xr) -> i8<0.25>[4]
tabulate: a function of two values -> unchanged
    %xr = quant.dcast(%x: i8<0.5>[4]); %br = quant.dcast(%b: i8<0.5>[4])
    %z = aten.mul.Tensor(%xr, %br); %y = quant.qcast(%z) -> i8<0.25>[4]
tabulate: an op that is no function of one element -> unchanged
    %xr = quant.dcast(%x: i8<0.5>[4]); %z = aten.cumsum.default(%xr, 0)
    %y = quant.qcast(%z) -> i8<0.25>[4]
tabulate: a constant of many elements -> unchanged
    %xr = quant.dcast(%x: i8<0.5>[4]); %z = aten.mul.Tensor(%xr, %w: weight f32[4])
    %y = quant.qcast(%z) -> i8<0.25>[4]
tabulate: a result of another shape -> unchanged
    %xr = quant.dcast(%x: i8<0.5>[4]); %z = aten.mul.Tensor(%xr, %w: weight f32[1, 1])
    %y = quant.qcast(%z) -> i8<0.25>[1, 4]
tabulate: an int16 result -> refused: the result is quantized to int16
    %xr = quant.dcast(%x: i8<0.5>[4]); %z = aten.tanh.default(%xr)
    %y = quant.qcast(%z) -> i16<0.25>[4]
tabulate: an int16 source -> refused: the operand is quantized to int16
    %xr = quant.dcast(%x: i16<0.5>[4]); %z = aten.tanh.default(%xr)
    %y = quant.qcast(%z) -> i8<0.25>[4]
compose-tables: three tables are one -> cmsis.quantized_activation
    %a = cmsis.quantized_activation(%x: i8[4], %s: constant i8[256]) -> i8[4]
    %b = cmsis.quantized_activation(%a, %t: constant i8[256]) -> i8[4]
    %y = cmsis.quantized_activation(%b, %s) -> i8[4]
compose-tables: one table is one -> unchanged
    %y = cmsis.quantized_activation(%x: i8[4], %s: constant i8[256]) -> i8[4]
compose-tables: a value between that is used twice -> unchanged
    %a = cmsis.quantized_activation(%x: i8[4], %s: constant i8[256]) -> i8[4]
    %b = cmsis.quantized_activation(%a, %t: constant i8[256]) -> i8[4]
    %y = cmsis.minimum(%a, %b) -> i8[4]
compose-tables: a table that is an input is not known -> unchanged
    - %a = cmsis.quantized_activation(%x: i8[4], %s: constant i8[256]) -> i8[4]
      %y = cmsis.quantized_activation(%a, %t: i8[256]) -> i8[4]
    - %a = cmsis.quantized_activation(%x: i8[4], %s: i8[256]) -> i8[4]
      %y = cmsis.quantized_activation(%a, %t: constant i8[256]) -> i8[4]
lower-boundary: bytes without a sign go back to where they came from -> quantized_decomposed.quantize_per_tensor.default, quant.scast, quant.scast, quantized_decomposed.dequantize_per_tensor.default
    %x = quant.qcast(%f: f32[4]) -> !quant.uniform<u8:f32, 0.5:3>[4]; %y = quant.dcast(%x)
lower-boundary: a weight that floats use is dequantized ahead of time -> nothing
    %w = quant.scast(%ws: weight "w" i8[3, 4]) -> i8<:0, {0.1, 0.2, 0.3}>[3, 4]
    %y = quant.dcast(%w)
lower-boundary: scales along an axis of a computed value -> refused: only weights may have scales along an axis
    %y = quant.dcast(%x: i8<:0, {0.1, 0.2, 0.3}>[3, 4])
""")


test_lower_arithmetic = cases(elementwise)("""
lower-arithmetic: each is one operator -> cmsis.quantized_add
    - %ar = quant.dcast(%a: i8<0.5>[4]); %br = quant.dcast(%b: i8<0.5:2>[4])
      %z = aten.add.Tensor(%ar, %br); %y = quant.qcast(%z) -> i8<1.0>[4]
    - %ar = quant.dcast(%a: i8<0.5>[4]); %br = quant.dcast(%b: i8<0.5:2>[4])
      %z = aten.sub.Tensor(%ar, %br); %y = quant.qcast(%z) -> i8<1.0>[4]
lower-arithmetic: each is one operator -> cmsis.quantized_mul
    %ar = quant.dcast(%a: i8<0.5>[4]); %br = quant.dcast(%b: i8<0.5:2>[4])
    %z = aten.mul.Tensor(%ar, %br); %y = quant.qcast(%z) -> i8<1.0>[4]
lower-arithmetic: a whole alpha folds into a multiplier -> cmsis.quantized_add
    %ar = quant.dcast(%a: i8<0.5>[4]); %br = quant.dcast(%b: i8<0.5:2>[4])
    %z = aten.add.Tensor(%ar, %br, alpha=3); %y = quant.qcast(%z) -> i8<2.0>[4]
lower-arithmetic: another alpha -> refused: an integer other than 0
    - %ar = quant.dcast(%a: i8<0.5>[4]); %br = quant.dcast(%b: i8<0.5:2>[4])
      %z = aten.add.Tensor(%ar, %br, alpha=1.5); %y = quant.qcast(%z) -> i8<1.0>[4]
    - %ar = quant.dcast(%a: i8<0.5>[4]); %br = quant.dcast(%b: i8<0.5:2>[4])
      %z = aten.add.Tensor(%ar, %br, alpha=0); %y = quant.qcast(%z) -> i8<1.0>[4]
lower-arithmetic: a sum far beyond its results scale -> refused: takes the requantization past int32
    %ar = quant.dcast(%a: i8<0.5>[4]); %br = quant.dcast(%b: i8<0.5:2>[4])
    %z = aten.sub.Tensor(%ar, %br); %y = quant.qcast(%z) -> i8<1.0e-08>[4]
lower-arithmetic: a product far beyond its results scale -> refused: takes the product past int32
    %ar = quant.dcast(%a: i8<0.5>[4]); %br = quant.dcast(%b: i8<0.5:2>[4])
    %z = aten.mul.Tensor(%ar, %br); %y = quant.qcast(%z) -> i8<1.0e-06>[4]
lower-arithmetic: a number as operand is a tables business -> unchanged
    %ar = quant.dcast(%a: i8<0.5>[4]); %n = sym.constant 2.000000e+00 : f64 : !stepwell.float<"2.0">
    %z = aten.add.Tensor(%ar, %n); %y = quant.qcast(%z) -> i8<0.25>[4]
lower-arithmetic: an int16 division is the librarys -> cmsis.quantized_div
    %ar = quant.dcast(%a: i16<0.01>[4]); %br = quant.dcast(%b: i16<0.01>[4])
    %z = aten.div.Tensor(%ar, %br); %y = quant.qcast(%z) -> i16<0.01>[4]
lower-arithmetic: a clamp after an int16 division has no table -> refused: an int16 result is clamped
    %ar = quant.dcast(%a: i16<0.01>[4]); %br = quant.dcast(%b: i16<0.01>[4])
    %z = aten.div.Tensor(%ar, %br); %c = aten.relu.default(%z); %y = quant.qcast(%c) -> i16<0.01>[4]
""")


LACKING = {(number, word) for number in ("0.1", "1000.0") for word in ("eq", "ne")} | {
    ("1000.0", "lt"),
    ("1000.0", "ge"),
}
"""Of int8 none is greater than all, and none stands between two."""


@pytest.mark.parametrize("word", "eq ne lt le gt ge".split())
@pytest.mark.parametrize("number", ["0.1", "2", "-7.5", "1000.0"])
def test_a_number_becomes_an_integer_that_compares_the_same(
    apply: Any, refused: Any, word: str, number: str
):
    text = f"%xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %y = aten.{word}.Scalar(%xr, {number})"
    if (number, word) in LACKING:
        refused(
            text,
            step(carried.compare),
            "no integer compares with the operand's integers",
        )
    else:
        assert "quant.scast" in apply(text, step(carried.compare)).ops()


test_two_tensors_compare_as_integers = cases(step(carried.compare))("""
tensors of one scale -> contains quant.scast
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %wr = quant.dcast(%w: i8<0.5:3>[2, 4])
    %y = aten.lt.Tensor(%xr, %wr)
tensors of two scales -> refused: two scales
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %wr = quant.dcast(%w: i8<0.25>[2, 4])
    %y = aten.lt.Tensor(%xr, %wr)
""")


test_carried = cases(carried, pooling)("""
compare-integers: a scale that makes equal reals -> refused: different integers to equal reals
    %xr = quant.dcast(%x: i8<1.0e-46>[2, 4]); %wr = quant.dcast(%w: i8<1.0e-46>[2, 4])
    %y = aten.gt.Scalar(%xr, 0.0)
lower-pick: a choice is one of bytes -> quant.scast, quant.scast, aten.where.self, quant.scast
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %wr = quant.dcast(%w: i8<0.5:3>[2, 4])
    %z = aten.where.self(%m: i1[2, 4], %xr, %wr); %y = quant.qcast(%z) -> i8<0.5:3>[2, 4]
lower-pick: by a table -> cmsis.quantized_activation, quant.scast, quant.scast, aten.where.self, quant.scast
    %xr = quant.dcast(%x: i8<0.5:3>[2, 4]); %wr = quant.dcast(%w: i8<0.25>[2, 4])
    %z = aten.where.self(%m: i1[2, 4], %xr, %wr); %y = quant.qcast(%z) -> i8<0.5:3>[2, 4]
lower-nearest: a resize to the nearest moves bytes -> cmsis.transpose, quant.scast, aten.view.default, quant.scast, quant.scast, aten.expand.default, quant.scast, quant.scast, aten.view.default, quant.scast, cmsis.transpose
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 2, 3]); %z = aten.upsample_nearest2d.default(%xr, [4, 9])
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 4, 9]
lower-nearest: a resize to the nearest moves bytes -> quant.scast, aten.index_select.default, quant.scast, quant.scast, aten.index_select.default, quant.scast
    - %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 2, 3]); %z = aten.upsample_nearest2d.default(%xr, [3, 5])
      %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 3, 5]
    - %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 2, 3])
      %z = aten._upsample_nearest_exact2d.default(%xr, [3, 5])
      %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 3, 5]
lower-nearest: a resize to the nearest moves bytes -> quant.scast, aten.index_select.default, quant.scast
    %xr = quant.dcast(%x: i8<0.5:3>[1, 2, 3]); %z = aten.upsample_nearest1d.default(%xr, [6])
    %y = quant.qcast(%z) -> i8<0.5:3>[1, 2, 6]
lower-maximum: a maximum is a pool where its axes are neighbors -> quant.scast, aten.view.default, quant.scast, cmsis.quantized_max_pool2d_nhwc, quant.scast, aten.view.default, quant.scast
    %xr = quant.dcast(%x: i8<0.5:3>[2, 3, 4]); %z = aten.amax.default(%xr, [1])
    %y = quant.qcast(%z) -> i8<0.5:3>[2, 4]
lower-pick: a maximum is a pool where its axes are neighbors -> quant.scast, aten.amax.default, quant.scast
    %xr = quant.dcast(%x: i8<0.5:3>[2, 3, 4]); %z = aten.amax.default(%xr, [0, 2])
    %y = quant.qcast(%z) -> i8<0.5:3>[3]
""")
