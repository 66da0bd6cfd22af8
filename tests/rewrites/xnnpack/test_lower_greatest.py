"""LowerGreatest: beyond its documented example, and what it leaves alone."""

from typing import Any

from rewrite_cases import cases

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import reductions


def test_an_axis_of_one_needs_no_pooling(apply: Any) -> None:
    done = apply("%y = aten.amax.default(%x: f32[1, 4], [0])", step(reductions.greatest))
    assert done.count == 1 and "pooling" not in done.text


test_lower_greatest = cases(
    reductions,
    """
lower-greatest: rows are folded or stood upright -> aten.view.default, xnnpack.max_pooling_2d, aten.view.default, xnnpack.max_pooling_2d, aten.view.default
    - %y = aten.amax.default(%x: f32[2, 48], [1])
    - %y = aten.amax.default(%x: f32[12], [0])
lower-greatest: rows are folded or stood upright -> aten.permute.default, aten.view.default, xnnpack.max_pooling_2d, aten.view.default
    %y = aten.amax.default(%x: f32[3, 7, 11], [2])
lower-greatest: rows are folded or stood upright -> aten.view.default, aten.permute.default, aten.view.default, xnnpack.max_pooling_2d, aten.view.default
    %y = aten.amax.default(%x: f32[5, 8], [1])
lower-greatest: rows are folded or stood upright -> aten.view.default, xnnpack.max_pooling_2d, aten.view.default
    %y = aten.amax.default(%x: f32[3, 11], [1])
lower-greatest: 2x4-i32-float32 or float16 -> refused: float32 or float16
    %y = aten.amax.default(%x: i32[2, 4], [0])
lower-greatest: what no pooling takes -> refused: no node
    %y = aten.amax.default(%x: f32[n, 4], [0])
""",
)
