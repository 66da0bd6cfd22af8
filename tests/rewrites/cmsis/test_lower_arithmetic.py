"""LowerArithmetic: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.lowerings.cmsis import elementwise
from stepwell.translate.lowerings.lowering import step


def pair(
    words: Any,
    method: Any,
    op: str,
    *lines: str,
    first: str = "0.5",
    second: str = "0.5:2",
    out: str = "1.0",
    storage: str = "i8",
    rest: str = "",
) -> str:
    made = lines[-1].split("=")[0].strip(" %") if lines else "z"
    return method(
        f"%a: {words.typed('4', first, storage)}, %b: {words.typed('4', second, storage)}",
        words.dcast("a", "4", first, storage),
        words.dcast("b", "4", second, storage),
        words.call("z", op, f"%ar, %br{rest}", ("4", "4"), "4"),
        *lines,
        words.qcast(made, "4", out, storage),
        gives=words.typed("4", out, storage),
    )


@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_each_is_one_operator(apply: Any, method: Any, words: Any, op: str):
    done = apply(pair(words, method, f"aten.{op}.Tensor"), step(elementwise.arithmetic))
    assert done.ops() == [f"cmsis.quantized_{'mul' if op == 'mul' else 'add'}"]


def test_a_whole_alpha_folds_into_a_multiplier(apply: Any, method: Any, words: Any):
    text = pair(words, method, "aten.add.Tensor", out="2.0", rest=", alpha=3")
    assert apply(text, step(elementwise.arithmetic)).ops() == ["cmsis.quantized_add"]


@pytest.mark.parametrize("alpha", ["1.5", "0"])
def test_another_alpha_is_refused(refused: Any, method: Any, words: Any, alpha: str):
    text = pair(words, method, "aten.add.Tensor", rest=f", alpha={alpha}")
    refused(text, step(elementwise.arithmetic), "an integer other than 0")


def test_a_sum_far_beyond_its_results_scale_is_refused(refused: Any, method: Any, words: Any):
    text = pair(words, method, "aten.sub.Tensor", out="0.00000001")
    refused(text, step(elementwise.arithmetic), "takes the requantization past int32")


def test_a_product_far_beyond_its_results_scale_is_refused(refused: Any, method: Any, words: Any):
    text = pair(words, method, "aten.mul.Tensor", out="0.000001")
    refused(text, step(elementwise.arithmetic), "takes the product past int32")


def test_a_number_as_operand_is_a_tables_business(refused: Any, method: Any, words: Any):
    text = method(
        f"%a: {words.typed('4')}",
        words.dcast("a", "4"),
        '%n = sym.constant 2.0 : f64 : !stepwell.float<"2.0">',
        '%z = aten.add.Tensor(%ar, %n) : (tensor<4xf32>, !stepwell.float<"2.0">) -> tensor<4xf32>',
        words.qcast("z", "4", "0.25"),
        gives=words.typed("4", "0.25"),
    )
    refused(text, step(elementwise.arithmetic))


def test_an_int16_division_is_the_librarys(apply: Any, method: Any, words: Any):
    text = pair(
        words, method, "aten.div.Tensor", first="0.01", second="0.01", out="0.01", storage="i16"
    )
    assert apply(text, step(elementwise.arithmetic)).ops() == ["cmsis.quantized_div"]


def test_a_clamp_behind_an_int16_division_has_no_table(refused: Any, method: Any, words: Any):
    clamp = "%c = aten.relu.default(%z) : (tensor<4xf32>) -> tensor<4xf32>"
    text = pair(
        words,
        method,
        "aten.div.Tensor",
        clamp,
        first="0.01",
        second="0.01",
        out="0.01",
        storage="i16",
    )
    refused(text, step(elementwise.arithmetic), "the tables that clamp hold int8")
