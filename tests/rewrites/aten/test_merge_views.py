"""MergeViews: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.merge_views import MergeViews


def test_a_permute_that_moves_elements_is_no_view(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x2x3xf32>",
            "%y = aten.permute.default(%x, [2, 0, 1]) : (tensor<1x2x3xf32>) -> tensor<3x1x2xf32>",
            gives="tensor<3x1x2xf32>",
        ),
        MergeViews(),
    )


def test_a_view_and_its_inverse_vanish(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.view.default(%x, [6]) : (tensor<2x3xf32>) -> tensor<6xf32>",
            "%b = aten.view.default(%a, [2, 3]) : (tensor<6xf32>) -> tensor<2x3xf32>",
            "%y = aten.neg.default(%b) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        MergeViews(),
    )
    assert done.ops() == ["aten.neg.default"]
