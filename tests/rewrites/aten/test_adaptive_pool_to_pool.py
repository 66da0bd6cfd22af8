"""`adaptive-pool-to-pool`: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.decompositions import pools
from stepwell.translate.lowerings.lowering import step

test_adaptive_pool_to_pool = cases(
    pools,
    """
adaptive-pool-to-pool: windows of several lengths -> refused: several lengths
    %y = aten.adaptive_avg_pool2d.default(%x: f32[1, 1, 5, 5], [2, 2])
adaptive-pool-to-pool: indices that are used keep the op -> refused: indices
    %a, %y = aten.adaptive_max_pool2d.default(%x: f32[1, 1, 4, 4], [2, 2])
    return %y
adaptive-pool-to-pool: one axis to several elements -> refused: 1 axes
    %y = aten.adaptive_avg_pool1d.default(%x: f32[1, 1, 4], [2])
adaptive-pool-to-pool: a pool to nothing has no windows -> refused: empty
    %y = aten.adaptive_avg_pool2d.default(%x: f32[1, 3, 8, 8], [0, 2])
""",
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
