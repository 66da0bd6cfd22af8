"""LowerGreatest: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import reductions


def test_an_axis_of_one_needs_no_pooling(apply: Any, method: Any) -> None:
    line = "%y = aten.amax.default(%x, [0]) : (tensor<1x4xf32>) -> tensor<4xf32>"
    done = apply(
        method("%x: tensor<1x4xf32>", line, gives="tensor<4xf32>"), step(reductions.greatest)
    )
    assert done.count == 1 and "pooling" not in done.text


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((2, 48), "view max_pooling_2d view max_pooling_2d view"),  # Lines of 8.
        ((12,), "view max_pooling_2d view max_pooling_2d view"),  # Lines of 4.
        ((3, 7, 11), "permute view max_pooling_2d view"),  # 7 elements stand behind each.
        ((5, 8), "view permute view max_pooling_2d view"),
        ((3, 11), "view max_pooling_2d view"),  # As it is.
    ],
    ids=str,
)
def test_rows_are_folded_or_stood_upright(
    shape: tuple[int, ...], wanted: str, apply: Any, method: Any
) -> None:
    given, made = (
        f"tensor<{''.join(f'{size}x' for size in held)}f32>" for held in (shape, shape[:-1])
    )
    line = f"%y = aten.amax.default(%x, [{len(shape) - 1}]) : ({given}) -> {made}"
    done = apply(method(f"%x: {given}", line, gives=made), step(reductions.greatest))
    assert " ".join(name.split(".")[1] for name in done.ops()) == wanted


@pytest.mark.parametrize(
    ("shape", "held", "reason"),
    [("2x4", "i32", "float32 or float16"), ('?x4xf32, #stepwell.shape<["n", 4]>', "", "no node")],
)
def test_what_no_pooling_takes_is_left(
    shape: str, held: str, reason: str, refused: Any, method: Any
) -> None:
    given = f"tensor<{shape}{'x' * bool(held)}{held}>"
    made = f"tensor<4x{held or 'f32'}>"
    line = f"%y = aten.amax.default(%x, [0]) : ({given}) -> {made}"
    refused(method(f"%x: {given}", line, gives=made), step(reductions.greatest), reason)
