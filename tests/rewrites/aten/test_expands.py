"""Expands: beyond their examples, and what stays."""

from typing import Any

from stepwell.translate.rewrites.views.expands import RULES

ALL = {rule.name: rule() for rule in RULES}


def test_an_expand_that_repeats_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x3xf32>",
            "%y = aten.expand.default(%x, [2, 3]) : (tensor<1x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["remove-noop-expand"],
    )


def test_an_expand_that_adds_an_axis_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.expand.default(%x, [1, 2, 3]) : (tensor<2x3xf32>) -> tensor<1x2x3xf32>",
            gives="tensor<1x2x3xf32>",
        ),
        ALL["remove-noop-expand"],
    )
