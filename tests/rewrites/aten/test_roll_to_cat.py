"""RollToCat: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.decompositions.aten import slices
from stepwell.translate.lowerings.lowering import step


def test_a_flip_is_refused_with_the_reason(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.flip.default(%x, [1]) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        step(slices.roll_to_cat),
        "gather",
    )


def test_a_roll_without_axes_rolls_the_flat_tensor(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.roll.default(%x, [2]) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        step(slices.roll_to_cat),
    )
    assert done.ops() == [
        "aten.view.default",
        "aten.slice.Tensor",
        "aten.slice.Tensor",
        "aten.cat.default",
        "aten.view.default",
    ]


def test_shifts_of_one_axis_that_cancel_vanish(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.roll.default(%x, [4, -1], [1, 1]) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.neg.default(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        step(slices.roll_to_cat),
    )
    assert done.ops() == ["aten.neg.default"]
