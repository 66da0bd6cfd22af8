"""Permutes of permutes: beyond their examples, and what stays."""

from typing import Any

from stepwell.translate.rewrites.views.permutes import RULES

ALL = {rule.name: rule() for rule in RULES}


def test_a_permute_and_its_inverse_vanish(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3x4xf32>",
            "%a = aten.permute.default(%x, [1, 2, 0]) : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>",
            "%b = aten.permute.default(%a, [2, 0, 1]) : (tensor<3x4x2xf32>) -> tensor<2x3x4xf32>",
            "%y = aten.neg.default(%b) : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>",
            gives="tensor<2x3x4xf32>",
        ),
        *ALL.values(),
    )
    assert done.ops() == ["aten.neg.default"]


def test_a_view_between_two_permutes_keeps_both(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3x4xf32>",
            "%a = aten.permute.default(%x, [1, 2, 0]) : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>",
            "%b = aten.view.default(%a, [4, 3, 2]) : (tensor<3x4x2xf32>) -> tensor<4x3x2xf32>",
            "%y = aten.permute.default(%b, [1, 0, 2]) : (tensor<4x3x2xf32>) -> tensor<3x4x2xf32>",
            gives="tensor<3x4x2xf32>",
        ),
        ALL["merge-permutes"],
    )
