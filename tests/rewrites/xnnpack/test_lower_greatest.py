"""LowerGreatest: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.rewrites.xnnpack.lower_greatest import LowerGreatest


def test_an_axis_of_one_needs_no_pooling(apply: Any, method: Any) -> None:
    line = "%y = aten.amax.default(%x, [0]) : (tensor<1x4xf32>) -> tensor<4xf32>"
    done = apply(method("%x: tensor<1x4xf32>", line, gives="tensor<4xf32>"), LowerGreatest())
    assert done.count == 1 and "pooling" not in done.text


@pytest.mark.parametrize(
    ("shape", "held", "reason"),
    [("2x4", "i32", "float32 or float16"), ('?x4xf32, #stepwell.shape<["n", 4]>', "", "symbolic")],
)
def test_what_no_pooling_takes_is_left(
    shape: str, held: str, reason: str, refused: Any, method: Any
) -> None:
    given = f"tensor<{shape}{'x' * bool(held)}{held}>"
    made = f"tensor<4x{held or 'f32'}>"
    line = f"%y = aten.amax.default(%x, [0]) : ({given}) -> {made}"
    refused(method(f"%x: {given}", line, gives=made), LowerGreatest(), reason)
