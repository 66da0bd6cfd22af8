"""Ops that pick among int8 numbers or compare them: what they become, and what is left alone."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.lowerings.cmsis import carried, pooling
from stepwell.translate.lowerings.lowering import step

LACKING = {(number, word) for number in ("0.1", "1000.0") for word in ("eq", "ne")} | {
    ("1000.0", "lt"),
    ("1000.0", "ge"),
}
"""Of int8 none is greater than all, and none stands between two."""
ORDERED = "tensor<2x4xi1>"


def of_two(words: Any, method: Any, call: str, scale: str, gives: str = ORDERED) -> str:
    return method(
        f"%x: {words.typed('2x4', '0.5:3')}, %w: {words.typed('2x4', scale)}, %m: {ORDERED}",
        words.dcast("x", "2x4", "0.5:3"),
        words.dcast("w", "2x4", scale),
        call,
        gives=gives,
    )


def compared(words: Any, method: Any, number: str, word: str = "gt") -> str:
    call = f"%y = aten.{word}.Scalar(%xr, {number}) : (tensor<2x4xf32>) -> {ORDERED}"
    return of_two(words, method, call, "0.5:3")


@pytest.mark.parametrize("word", "eq ne lt le gt ge".split())
@pytest.mark.parametrize("number", ["0.1", "2", "-7.5", "1000.0"])
def test_a_number_becomes_an_integer_that_compares_the_same(
    apply: Any, refused: Any, method: Any, words: Any, word: str, number: str
):
    text = compared(words, method, number, word)
    if (number, word) in LACKING:
        refused(text, step(carried.compare), "no integer is to its operand's")
    else:
        assert "quant.scast" in apply(text, step(carried.compare)).ops()


@pytest.mark.parametrize("scale", ["0.5:3", "0.25"])
def test_two_tensors_compare_as_integers_of_one_scale(
    apply: Any, refused: Any, method: Any, words: Any, scale: str
):
    call = "%y = aten.lt.Tensor(%xr, %wr) : (tensor<2x4xf32>, tensor<2x4xf32>) -> " + ORDERED
    text = of_two(words, method, call, scale)
    if scale == "0.25":
        refused(text, step(carried.compare), "two scales")
    else:
        assert "quant.scast" in apply(text, step(carried.compare)).ops()


test_carried = cases(
    carried,
    pooling,
    """
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
""",
)
