"""Tabulate: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.lowerings.cmsis import elementwise
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.cmsis.layout.merge_movement import RULES


def chain(
    words: Any,
    method: Any,
    *lines: str,
    given: str = "0.5",
    out: str = "0.25",
    shapes: tuple[str, str] = ("4", "4"),
    storage: tuple[str, str] = ("i8", "i8"),
    more: str = "",
) -> str:
    return method(
        f"%x: {words.typed(shapes[0], given, storage[0])}{more}",
        words.dcast("x", shapes[0], given, storage[0]),
        *lines,
        words.qcast("z", shapes[1], out, storage[1]),
        gives=words.typed(shapes[1], out, storage[1]),
    )


(COMPOSE,) = (rule() for rule in RULES if rule.name == "compose-tables")
TANH = "%z = aten.tanh.default(%xr) : (tensor<4xf32>) -> tensor<4xf32>"


def test_a_chain_through_a_quantization_within_is_one_table(apply: Any, method: Any, words: Any):
    text = chain(
        words,
        method,
        TANH.replace("%z", "%a"),
        words.qcast("a", "4", "0.01", name="b"),
        words.dcast("b", "4", "0.01"),
        "%z = aten.neg.default(%br) : (tensor<4xf32>) -> tensor<4xf32>",
    )
    done = apply(text, step(elementwise.tabulate), COMPOSE)
    assert done.ops() == ["cmsis.quantized_activation"]


def test_above_a_value_that_cannot_be_followed_the_table_begins_there(
    apply: Any, method: Any, words: Any
):
    text = method(
        "%f: tensor<4xf32>",
        words.qcast("f", "4", "0.5", name="x"),
        words.dcast("x", "4"),
        TANH,
        words.qcast("z", "4", "0.01"),
        gives=words.typed("4", "0.01"),
    )
    assert apply(text, step(elementwise.tabulate)).ops() == [
        "quant.qcast",
        "cmsis.quantized_activation",
    ]


def test_a_change_of_scale_alone_is_a_table(apply: Any, method: Any, words: Any):
    text = chain(words, method).replace("%z :", "%xr :")
    assert apply(text, step(elementwise.tabulate)).ops() == ["cmsis.quantized_activation"]


def test_a_function_of_two_values_is_left(refused: Any, method: Any, words: Any):
    text = chain(
        words,
        method,
        words.dcast("b", "4"),
        "%z = aten.mul.Tensor(%xr, %br) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>",
        more=f", %b: {words.typed('4')}",
    )
    refused(text, step(elementwise.tabulate))


def test_an_op_that_is_no_function_of_one_element_is_left(refused: Any, method: Any, words: Any):
    sums = "%z = aten.cumsum.default(%xr, 0) : (tensor<4xf32>) -> tensor<4xf32>"
    refused(chain(words, method, sums), step(elementwise.tabulate))


def test_a_constant_of_many_elements_is_left(refused: Any, method: Any, words: Any):
    text = chain(
        words,
        method,
        '%w = stepwell.weight <"w"> "parameter" : tensor<4xf32>',
        "%z = aten.mul.Tensor(%xr, %w) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>",
    )
    refused(text, step(elementwise.tabulate))


def test_a_result_of_another_shape_is_left(refused: Any, method: Any, words: Any):
    text = chain(
        words,
        method,
        '%w = stepwell.weight <"w"> "parameter" : tensor<1x1xf32>',
        "%z = aten.mul.Tensor(%xr, %w) : (tensor<4xf32>, tensor<1x1xf32>) -> tensor<1x4xf32>",
        shapes=("4", "1x4"),
    )
    refused(text, step(elementwise.tabulate))


def test_an_int16_result_is_refused(refused: Any, method: Any, words: Any):
    text = chain(words, method, TANH, storage=("i8", "i16"))
    refused(text, step(elementwise.tabulate), "its result is quantized to int16")


def test_an_int16_source_is_refused(refused: Any, method: Any, words: Any):
    text = chain(words, method, TANH, storage=("i16", "i8"))
    refused(text, step(elementwise.tabulate), "its operand is quantized to int16")
