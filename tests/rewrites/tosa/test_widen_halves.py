"""`widen-rounded-halves`: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.decompositions import floats
from stepwell.translate.lowerings.lowering import step

PLANES = "tensor<1x2x3x4xf16>"


@pytest.mark.parametrize(
    ("given", "line", "made"),
    [
        pytest.param(
            "tensor<2x3xf32>",
            "%y = aten.mean.dim(%x, [1], false, dtype=f16) : (tensor<2x3xf32>) -> tensor<2xf16>",
            "tensor<2xf16>",
            id="a mean that narrows is no op of halves",
        ),
        pytest.param(
            PLANES,
            f"%y = aten.mean.dim(%x, [2, 3], false) : ({PLANES}) -> tensor<1x2xf16>",
            "tensor<1x2xf16>",
            id="the mean of an image is a pool, which sums in single precision itself",
        ),
    ],
)
def test_some_means_are_left(given: str, line: str, made: str, apply: Any, method: Any) -> None:
    done = apply(method(f"%x: {given}", line, gives=made), step(floats.widen_rounded_halves))
    assert done.count == 0
