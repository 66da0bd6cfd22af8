"""`adaptive-pool-to-pool`: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.decompositions.aten import pools
from stepwell.translate.lowerings.lowering import step


def test_windows_of_several_lengths_are_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x1x5x5xf32>",
            "%y = aten.adaptive_avg_pool2d.default(%x, [2, 2]) : (tensor<1x1x5x5xf32>) -> tensor<1x1x2x2xf32>",
            gives="tensor<1x1x2x2xf32>",
        ),
        step(pools.adaptive_pool_to_pool),
        "several lengths",
    )


def test_indices_that_are_used_keep_the_op(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x1x4x4xf32>",
            "%a, %y = aten.adaptive_max_pool2d.default(%x, [2, 2]) : (tensor<1x1x4x4xf32>) -> (tensor<1x1x2x2xf32>, tensor<1x1x2x2xi64>)",
            gives="tensor<1x1x2x2xi64>",
        ),
        step(pools.adaptive_pool_to_pool),
        "indices",
    )


def test_one_axis_to_several_elements_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x1x4xf32>",
            "%y = aten.adaptive_avg_pool1d.default(%x, [2]) : (tensor<1x1x4xf32>) -> tensor<1x1x2xf32>",
            gives="tensor<1x1x2xf32>",
        ),
        step(pools.adaptive_pool_to_pool),
        "1 axes",
    )


@pytest.mark.parametrize("side", ["before", "after"])
def test_an_axis_known_only_at_run_time_is_refused(side: str, refused: Any, method_of_n: Any):
    axis = '#stepwell.shape<[1, 3, "n", 2]>>'
    late, eight = f"tensor<1x3x?x2xf32, {axis}", "tensor<1x3x8x2xf32>"
    given, made = (late, "tensor<1x3x4x2xf32>") if side == "before" else (eight, late)
    size, more = ("4", "") if side == "before" else ("%n", ', !stepwell.int<"n">')
    call = f"%y = aten.adaptive_avg_pool2d.default(%x, [{size}, 2]) : ({given}{more}) -> {made}"
    refused(
        method_of_n(f"%x: {given}", call, gives=made), step(pools.adaptive_pool_to_pool), "symbolic"
    )


def test_a_pool_to_nothing_has_no_windows(refused: Any, method: Any):
    given, made = "tensor<1x3x8x8xf32>", "tensor<1x3x0x2xf32>"
    call = f"%y = aten.adaptive_avg_pool2d.default(%x, [0, 2]) : ({given}) -> {made}"
    refused(method(f"%x: {given}", call, gives=made), step(pools.adaptive_pool_to_pool), "empty")
