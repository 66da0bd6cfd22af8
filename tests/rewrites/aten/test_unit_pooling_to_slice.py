"""UnitPoolingToSlice: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.decompositions.aten import pools
from stepwell.translate.lowerings.lowering import step

X = "tensor<1x2x5x4xf32>"


def pooled(rest: str, gives: str, method: Any, x: str = X, kind: str = "max") -> str:
    line = f"%y = aten.{kind}_pool2d.default(%x, {rest}) : ({x}) -> {gives}"
    return method(f"%x: {x}", line, gives=gives)


@pytest.mark.parametrize(
    ("rest", "size"),
    [
        ("[1, 1], [2, 2]", "3x2"),
        ("[1, 1], [3, 3], [0, 0], [2, 2]", "2x2"),
        ("[1, 1], [2, 3], [0, 0], [1, 1], true", "3x2"),
        ("[1], [2]", "3x2"),
    ],
)
def test_steps_are_those_of_the_windows(rest: str, size: str, apply: Any, method: Any):
    done = apply(pooled(rest, f"tensor<1x2x{size}xf32>", method), step(pools.unit_pooling_to_slice))
    assert set(done.ops()) == {"aten.slice.Tensor"}


@pytest.mark.parametrize("rest", ["[1, 1], [2, 3]", "[1, 1], [2, 3], [0, 0], true, false, 1"])
def test_an_average_of_one_element_is_that_element(rest: str, apply: Any, method: Any):
    text = pooled(rest, "tensor<1x2x3x2xf32>", method, kind="avg")
    done = apply(text, step(pools.unit_pooling_to_slice))
    assert set(done.ops()) == {"aten.slice.Tensor"}


def test_an_element_that_is_divided_is_refused(refused: Any, method: Any):
    rest = "[1, 1], [2, 3], [0, 0], false, true, 2"
    text = pooled(rest, "tensor<1x2x3x2xf32>", method, kind="avg")
    refused(text, step(pools.unit_pooling_to_slice), "divided")


@pytest.mark.parametrize(
    ("rest", "size"), [("[2, 1], [2, 2]", "2x2"), ("[1, 1], [1, 1]", "5x4"), ("[1, 1]", "5x4")]
)
def test_other_windows_and_steps_of_one_are_left_alone(
    rest: str, size: str, refused: Any, method: Any
):
    refused(pooled(rest, f"tensor<1x2x{size}xf32>", method), step(pools.unit_pooling_to_slice))


def test_a_symbolic_size_is_refused(refused: Any, method: Any):
    x = 'tensor<1x2x?x4xf32, #stepwell.shape<[1, 2, "2*s0", 4]>>'
    gives = 'tensor<1x2x?x4xf32, #stepwell.shape<[1, 2, "s0", 4]>>'
    text = pooled("[1, 1], [2, 1]", gives, method, x)
    refused(text, step(pools.unit_pooling_to_slice), "symbolic")


def test_a_batch_and_an_axis_of_steps_of_one_may_be_open(apply: Any, method: Any):
    x = 'tensor<?x2x?x4xf32, #stepwell.shape<["s1", 2, "s0", 4]>>'
    gives = 'tensor<?x2x?x2xf32, #stepwell.shape<["s1", 2, "s0", 2]>>'
    text = pooled("[1, 1], [1, 2]", gives, method, x)
    assert set(apply(text, step(pools.unit_pooling_to_slice)).ops()) == {"aten.slice.Tensor"}
