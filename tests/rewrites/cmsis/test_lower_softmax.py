"""LowerSoftmax: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.lowerings.cmsis import elementwise
from stepwell.translate.lowerings.lowering import step

OUT = "0.00390625:-128"


def softmax(words: Any, method: Any, shape: str, dim: int = -1, out: str = OUT) -> str:
    return method(
        f"%x: {words.typed(shape)}",
        words.dcast("x", shape),
        words.call("z", "aten.softmax.int", f"%xr, {dim}", (shape,), shape),
        words.qcast("z", shape, out),
        gives=words.typed(shape, out),
    )


def test_another_dimension_is_transposed_to_be_the_last(apply: Any, method: Any, words: Any):
    done = apply(softmax(words, method, "2x3x4", 1), step(elementwise.softmax))
    assert done.ops() == ["cmsis.transpose", "cmsis.softmax", "cmsis.transpose"]


def test_a_coarser_result_is_a_table_behind_it(apply: Any, method: Any, words: Any):
    done = apply(softmax(words, method, "2x8", out="0.01:-128"), step(elementwise.softmax))
    assert done.ops() == ["cmsis.softmax", "cmsis.quantized_activation"]


def test_the_longest_row_that_cannot_overflow_lowers(apply: Any, method: Any, words: Any):
    assert apply(softmax(words, method, "1x511"), step(elementwise.softmax)).count == 1


def test_a_longer_row_is_refused(refused: Any, method: Any, words: Any):
    refused(
        softmax(words, method, "1x512"), step(elementwise.softmax), "511 is the longest safe one"
    )


def test_a_finer_result_is_refused(refused: Any, method: Any, words: Any):
    refused(softmax(words, method, "2x8", out="0.003:-128"), step(elementwise.softmax), "finer")


def test_a_dimension_within_five_cannot_be_turned(refused: Any, method: Any, words: Any):
    refused(softmax(words, method, "1x2x2x3x2", 3), step(elementwise.softmax), "4")


def test_a_row_of_unknown_length_is_refused(refused: Any, method: Any, words: Any):
    held = '!quant.uniform<i8:f32, 0.5>, #stepwell.shape<["s0"]>'
    made = f'!quant.uniform<i8:f32, {OUT}>, #stepwell.shape<["s0"]>'
    real = 'tensor<?xf32, #stepwell.shape<["s0"]>>'
    text = method(
        f"%x: tensor<?x{held}>",
        f"%xr = quant.dcast %x : tensor<?x{held}> to {real}",
        f"%z = aten.softmax.int(%xr, -1) : ({real}) -> {real}",
        f"%y = quant.qcast %z : {real} to tensor<?x{made}>",
        gives=f"tensor<?x{made}>",
    )
    refused(text, step(elementwise.softmax), "run time")
