"""Averages as convolutions: windows whose cells all count, as large as XNNPACK's kernels."""

from typing import Any

import pytest

from stepwell.translate.decompositions import pools
from stepwell.translate.lowerings.lowering import step


def pool(method: Any, arguments: str, made: str, dtype: str = "f32") -> str:
    given = f"tensor<1x2x8x8x{dtype}>"
    line = (
        f"%y = aten.avg_pool2d.default(%x, {arguments}) : ({given}) -> tensor<1x2x{made}x{dtype}>"
    )
    return method(f"%x: {given}", line, gives=f"tensor<1x2x{made}x{dtype}>")


def test_a_counted_padding_becomes_one_of_the_convolution(apply: Any, method: Any) -> None:
    applied = apply(
        pool(method, "[3, 3], [1, 1], [1, 1]", "8x8"), step(pools.average_by_convolution)
    )
    assert applied.ops() == ["aten.convolution.default"]


@pytest.mark.parametrize(
    ("arguments", "made", "reason"),
    [
        ("[3, 3], [1, 1], [1, 1], false, false", "8x8", "count fewer cells"),
        ("[3, 3], [2, 2], [0, 0], true", "4x4", "extend past the edge"),
        ("[4, 4], [4, 4]", "2x2", "pads a window of 16 cells"),
    ],
)
def test_windows_of_other_cells_stay(
    arguments: str, made: str, reason: str, refused: Any, method: Any
) -> None:
    refused(pool(method, arguments, made), step(pools.average_by_convolution), reason)


def test_averages_of_doubles_stay(refused: Any, method: Any) -> None:
    text = pool(method, "[3, 3], [1, 1], [1, 1]", "8x8", "f64")
    refused(text, step(pools.average_by_convolution), "float32 or float16")
