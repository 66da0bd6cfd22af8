"""Ops that pick among int8 numbers or compare them: what they become, and what is left alone."""

from typing import Any

import pytest

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


def test_a_scale_that_makes_equal_reals_is_refused(refused: Any, method: Any, words: Any):
    text = compared(words, method, "0.0").replace("0.5:3", "1.0e-46")
    refused(text, step(carried.compare), "different integers to equal reals")


@pytest.mark.parametrize("scale", ["0.5:3", "0.25"], ids=["alike", "by a table"])
def test_a_choice_is_one_of_bytes(apply: Any, method: Any, words: Any, scale: str):
    call = (
        "%z = aten.where.self(%m, %xr, %wr) : "
        f"({ORDERED}, tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>\n"
        + words.qcast("z", "2x4", "0.5:3")
    )
    text = of_two(words, method, call, scale, words.typed("2x4", "0.5:3"))
    done = apply(text, step(carried.pick))
    assert ("cmsis.quantized_activation" in done.ops()) == (scale == "0.25")


@pytest.mark.parametrize(
    "op, given, made, holds",
    [
        ("upsample_nearest2d.default(%xr, [4, 9])", "1x2x2x3", "1x2x4x9", "aten.expand.default"),
        (
            "upsample_nearest2d.default(%xr, [3, 5])",
            "1x2x2x3",
            "1x2x3x5",
            "aten.index_select.default",
        ),
        ("upsample_nearest1d.default(%xr, [6])", "1x2x3", "1x2x6", "aten.index_select.default"),
        (
            "_upsample_nearest_exact2d.default(%xr, [3, 5])",
            "1x2x2x3",
            "1x2x3x5",
            "aten.index_select.default",
        ),
    ],
)
def test_a_resize_to_the_nearest_moves_bytes(
    apply: Any, method: Any, words: Any, op: str, given: str, made: str, holds: str
):
    text = method(
        f"%x: {words.typed(given, '0.5:3')}",
        words.dcast("x", given, "0.5:3"),
        f"%z = aten.{op} : (tensor<{given}xf32>) -> tensor<{made}xf32>",
        words.qcast("z", made, "0.5:3"),
        gives=words.typed(made, "0.5:3"),
    )
    assert holds in apply(text, step(carried.nearest)).ops()


@pytest.mark.parametrize("axes, made, pools", [("[1]", "2x4", True), ("[0, 2]", "3", False)])
def test_a_maximum_is_a_pool_where_its_axes_are_neighbors(
    apply: Any, method: Any, words: Any, axes: str, made: str, pools: bool
):
    text = method(
        f"%x: {words.typed('2x3x4', '0.5:3')}",
        words.dcast("x", "2x3x4", "0.5:3"),
        f"%z = aten.amax.default(%xr, {axes}) : (tensor<2x3x4xf32>) -> tensor<{made}xf32>",
        words.qcast("z", made, "0.5:3"),
        gives=words.typed(made, "0.5:3"),
    )
    done = apply(text, step(pooling.maximum if pools else carried.pick))
    assert ("cmsis.quantized_max_pool2d_nhwc" in done.ops()) == pools
