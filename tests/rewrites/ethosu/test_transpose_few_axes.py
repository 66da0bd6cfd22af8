"""Axes of size 1 and neighbors that stay neighbors leave a transpose."""

from typing import Any

import pytest

from stepwell.translate.rewrites.ethosu import FewestAxes, WithoutUnits


def transposed(shape: tuple[int, ...], order: tuple[int, ...]) -> str:
    source, result = ("x".join(map(str, s)) for s in (shape, [shape[axis] for axis in order]))
    perms = ", ".join(map(str, order))
    return f"""func.func @main(%x: tensor<{source}xi8>) -> tensor<{result}xi8> {{
  %y = tosa.transpose %x {{perms = array<i32: {perms}>}} : (tensor<{source}xi8>) -> tensor<{result}xi8>
  func.return %y : tensor<{result}xi8>
}}
"""


@pytest.mark.parametrize(
    ("shape", "order", "without_units", "fewest"),
    [
        ((1, 1, 18, 8), (0, 3, 1, 2), "tensor<18x8xi8>", "tensor<18x8xi8>"),
        ((4, 1, 18, 8), (0, 3, 1, 2), "tensor<4x18x8xi8>", "tensor<4x18x8xi8>"),
        ((1, 3, 6, 8), (0, 2, 3, 1), "", "tensor<3x48xi8>"),
        ((2, 3, 4), (0, 2, 1), "", ""),
    ],
)
def test_axes_that_do_not_move_merge(
    apply: Any, shape: tuple[int, ...], order: tuple[int, ...], without_units: str, fewest: str
) -> None:
    for rewrite, source in ((WithoutUnits(), without_units), (FewestAxes(), fewest)):
        done = apply(transposed(shape, order), rewrite)
        assert done.count == (1 if source else 0)
        assert not source or f": ({source}) ->" in str(done.text)
