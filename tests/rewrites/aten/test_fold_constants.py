"""FoldConstants: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.rewrites.aten.fold_constants import FoldConstants


def test_what_depends_on_an_input_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            '%w = stepwell.weight <"w"> "parameter" : tensor<2x3xf32>',
            "%y = aten.add.Tensor(%x, %w) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        FoldConstants(),
    )


def test_a_constant_that_would_grow_too_large_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            '%w = stepwell.weight <"w"> "parameter" : tensor<2x3xf32>',
            "%e = aten.repeat.default(%w, [64, 64]) : (tensor<2x3xf32>) -> tensor<128x192xf32>",
            "%y = aten.sum.default(%e) : (tensor<128x192xf32>) -> tensor<f32>",
            gives="tensor<f32>",
        ),
        FoldConstants(largest=1000),
        "bytes more",
    )


def test_random_numbers_are_no_constant(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.mul.Scalar(%x, 0.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        FoldConstants(),
    )


def test_a_constant_made_from_nothing_is_a_weight(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<4xi64>",
            "%a = aten.arange.default(4) : () -> tensor<4xi64>",
            "%y = aten.add.Tensor(%x, %a) : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>",
            gives="tensor<4xi64>",
        ),
        FoldConstants(),
    )
    assert done.ops() == ["aten.add.Tensor"]


def test_a_fill_of_an_input_s_shape_is_a_weight(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.full_like.default(%x, 2.5) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.add.Tensor(%x, %a) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        FoldConstants(),
    )
    assert done.ops() == ["aten.add.Tensor"]


HELD = '%w = stepwell.weight <"w"> "parameter" : tensor<2x3xf32>'
Q = "quantized_decomposed.quantize_per_tensor.default(%w, 0.5, 0, -128, 127, i8)"
LATE = 'tensor<?x3xf32, #stepwell.shape<["n", 3]>>'
NEAR_MISSES = {
    "random numbers": ("aten.bernoulli.p(%w, 1.0)", "tensor<2x3xf32>", "tensor<2x3xf32>"),
    "what memory holds": ("aten.empty.memory_format([0, 3])", "", "tensor<0x3xf32>"),
    "a quantised weight": (Q, "tensor<2x3xf32>", "tensor<2x3xi8>"),
    "a fill of any length": ("aten.full_like.default(%l, 2.5)", LATE, LATE),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_not_computed_beforehand(name: str, refused: Any, method: Any):
    call, given, made = NEAR_MISSES[name]
    line = f"%y = {call} : ({given}) -> {made}"
    refused(method(f"%l: {LATE}", HELD, line, gives=made), FoldConstants())


def test_a_fill_of_a_number_known_only_at_run_time_is_refused(refused: Any, method_of_n: Any):
    x, types = "tensor<2x3xf32>", '(tensor<2x3xf32>, !stepwell.int<"n">) -> tensor<2x3xf32>'
    line = f"%y = aten.full_like.default(%x, %n) : {types}"
    refused(method_of_n(f"%x: {x}", line, gives=x), FoldConstants(), "run time")
