"""Unit axes are dropped before a permute only if the view drops nothing else."""

from typing import Any

from stepwell.translate.rewrites.views.merge_views import RULES

(RULE,) = RULES.named("squeeze-permute")

X, P = "tensor<2x1x3xf32>", "tensor<3x1x2xf32>"
PERMUTE = f"%p = aten.permute.default(%x, [2, 1, 0]) : ({X}) -> {P}"


def test_a_view_that_merges_axes_stays(refused: Any, method: Any) -> None:
    view = f"%y = aten.view.default(%p, [6]) : ({P}) -> tensor<6xf32>"
    refused(method(f"%x: {X}", PERMUTE, view, gives="tensor<6xf32>"), RULE)


def test_a_view_that_adds_an_axis_stays(refused: Any, method: Any) -> None:
    view = f"%y = aten.view.default(%p, [1, 3, 1, 2]) : ({P}) -> tensor<1x3x1x2xf32>"
    refused(method(f"%x: {X}", PERMUTE, view, gives="tensor<1x3x1x2xf32>"), RULE)


def test_a_view_of_no_permute_stays(refused: Any, method: Any) -> None:
    view = f"%y = aten.view.default(%x, [2, 3]) : ({X}) -> tensor<2x3xf32>"
    refused(method(f"%x: {X}", view, gives="tensor<2x3xf32>"), RULE)


def test_a_permute_read_with_its_unit_axes_stays(refused: Any, method: Any) -> None:
    view = f"%v = aten.view.default(%p, [3, 2]) : ({P}) -> tensor<3x2xf32>"
    both = f"%y = aten.add.Tensor(%v, %p) : (tensor<3x2xf32>, {P}) -> tensor<3x3x2xf32>"
    text = method(f"%x: {X}", PERMUTE, view, both, gives="tensor<3x3x2xf32>")
    refused(text, RULE, "read with its unit axes")
