"""A gelu of halves stands between two converts; no other is touched."""

from typing import Any

import pytest

from stepwell.translate.rewrites.xnnpack.floats.widen_gelu import RULES

(WIDEN,) = (rule() for rule in RULES)


@pytest.mark.parametrize("shape", ["3x5", "2x3x4x5", "7"])
def test_halves_are_widened_and_rounded_once(shape: str, apply: Any, method: Any) -> None:
    x = f"tensor<{shape}xf16>"
    done = apply(method(f"%x: {x}", f"%y = xnnpack.gelu(%x) : ({x}) -> {x}", gives=x), WIDEN)
    assert done.ops() == ["xnnpack.convert", "xnnpack.gelu", "xnnpack.convert"]


def test_sizes_may_be_symbolic(apply: Any, method: Any) -> None:
    x = 'tensor<?x4xf16, #stepwell.shape<["n", 4]>>'
    done = apply(method(f"%x: {x}", f"%y = xnnpack.gelu(%x) : ({x}) -> {x}", gives=x), WIDEN)
    assert done.count == 1


def test_single_precision_stays(refused: Any, method: Any) -> None:
    x = "tensor<3x5xf32>"
    refused(method(f"%x: {x}", f"%y = xnnpack.gelu(%x) : ({x}) -> {x}", gives=x), WIDEN)
