"""`lower-matmul`: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.lowerings.cmsis import layers
from stepwell.translate.lowerings.lowering import step


def product(
    words: Any,
    method: Any,
    a: str,
    b: str,
    made: str,
    op: str = "matmul",
    out: str = "2.0",
    scale: str = "0.5",
) -> str:
    return method(
        f"%a: {words.typed(a, scale)}, %b: {words.typed(b, '0.25:1')}",
        words.dcast("a", a, scale),
        words.dcast("b", b, "0.25:1"),
        words.call("z", f"aten.{op}.default", "%ar, %br", (a, b), made),
        words.qcast("z", made, out),
        gives=words.typed(made, out),
    )


@pytest.mark.parametrize(
    "a, b, made",
    [("2x3", "3x4", "2x4"), ("5x2x3", "5x3x4", "5x2x4"), ("2x2x3x4", "2x2x4x5", "2x2x3x5")],
)
def test_products_of_any_rank_lower(apply: Any, method: Any, words: Any, a: str, b: str, made: str):
    done = apply(product(words, method, a, b, made), step(layers.matmul))
    assert "cmsis.quantized_batch_matmul" in done.ops()


@pytest.mark.parametrize(
    "a, b, made", [("3", "3x4", "4"), ("2x3", "3", "2"), ("5x2x3", "3x4", "5x2x4")]
)
def test_vectors_and_broadcast_batches_are_refused(
    refused: Any, method: Any, words: Any, a: str, b: str, made: str
):
    refused(product(words, method, a, b, made), step(layers.matmul), "broadcasts no batch")


def test_a_constant_right_side_is_a_linear_layers_business(refused: Any, method: Any, words: Any):
    text = method(
        f"%a: {words.typed('2x3')}",
        words.weight("b", "3x4"),
        words.dcast("a", "2x3"),
        words.call("z", "aten.mm.default", "%ar, %br", ("2x3", "3x4"), "2x4"),
        words.qcast("z", "2x4"),
        gives=words.typed("2x4", "1.0"),
    )
    refused(text, step(layers.matmul))


def test_a_dot_product_that_can_overflow_is_refused(refused: Any, method: Any, words: Any):
    text = product(words, method, "1x33026", "33026x1", "1x1")
    refused(text, step(layers.matmul), "can overflow int32")


def test_a_result_scale_far_too_fine_is_refused(refused: Any, method: Any, words: Any):
    text = product(words, method, "2x3", "3x4", "2x4", out="0.000001")
    refused(text, step(layers.matmul), "int32")


def test_a_shape_known_only_at_run_time_is_refused(refused: Any, method: Any, words: Any):
    held = '!quant.uniform<i8:f32, 0.5>, #stepwell.shape<["s0", 4]>'
    made = '!quant.uniform<i8:f32, 4.0>, #stepwell.shape<["s0", "s0"]>'
    real = 'tensor<?x4xf32, #stepwell.shape<["s0", 4]>>'
    turned = 'tensor<4x?xf32, #stepwell.shape<[4, "s0"]>>'
    square = 'tensor<?x?xf32, #stepwell.shape<["s0", "s0"]>>'
    text = method(
        f"%a: tensor<?x4x{held}>",
        f"%ar = quant.dcast %a : tensor<?x4x{held}> to {real}",
        f"%t = aten.permute.default(%ar, [1, 0]) : ({real}) -> {turned}",
        f"%z = aten.mm.default(%ar, %t) : ({real}, {turned}) -> {square}",
        f"%y = quant.qcast %z : {square} to tensor<?x?x{made}>",
        gives=f"tensor<?x?x{made}>",
    )
    refused(text, step(layers.matmul), "known only at run time")
