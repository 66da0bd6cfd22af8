"""Ops without effect: beyond their examples, and what stays."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.canonicalize.noops import RULES

ALL = {rule.name: rule() for rule in RULES}


test_noops = cases(
    RULES,
    """
remove-noop-permute: a transposition of a square -> unchanged
    %y = aten.permute.default(%x: f32[3, 3], [1, 0])
remove-noop-pad: a pad that moves but keeps the shape -> unchanged
    %y = aten.constant_pad_nd.default(%x: f32[2, 3], [1, -1])
remove-noop-roll: a roll -> unchanged
    %y = aten.roll.default(%x: f32[2, 3], [1], [0])
remove-noop-flip: a flip -> unchanged
    %y = aten.flip.default(%x: f32[2, 3], [0])
a view to the same symbolic shape goes -> aten.neg.default
    %a = aten.view.default(%x: f32[s0, 3], [-1, 3])
    %y = aten.neg.default(%a)
remove-native-dropout: a used mask keeps the dropout -> refused: mask is used
    %a, %y = aten.native_dropout.default(%x: f32[2, 3], 0.5, false)
    return %y
remove-dropout: dropout that drops everything -> refused: model.eval
    %y = aten.dropout.default(%x: f32[4], 1.0, true)
""",
)


@pytest.mark.parametrize(
    ("call", "result", "reason"),
    [
        ("aten.max_pool2d.default(%x, [1, 1], [2, 2])", "1x2x2x2", None),
        ("aten.max_pool2d.default(%x, [3, 3], [1, 1], [1, 1])", "1x2x4x4", None),
        ("aten.max_pool2d.default(%x, [2, 2], [1, 1])", "1x2x3x3", None),
        ("aten.avg_pool2d.default(%x, [2, 1], [1, 1])", "1x2x3x4", None),
        (
            "aten.avg_pool2d.default(%x, [1, 1], [1, 1], [0, 0], false, true, 2)",
            "1x2x4x4",
            "another number",
        ),
    ],
)
def test_pooling_that_changes_something_stays(
    call: str, result: str, reason: str | None, refused: Any, method: Any
):
    name = "remove-unit-max-pooling" if "max" in call else "remove-unit-average-pooling"
    refused(
        method(
            "%x: tensor<1x2x4x4xf32>",
            f"%y = {call} : (tensor<1x2x4x4xf32>) -> tensor<{result}xf32>",
            gives=f"tensor<{result}xf32>",
        ),
        ALL[name],
        reason,
    )
