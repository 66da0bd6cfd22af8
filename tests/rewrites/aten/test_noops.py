"""Ops without effect: beyond their examples, and what stays."""

from typing import Any

import pytest

from stepwell.translate.canonicalize.noops import RULES

ALL = {rule.name: rule() for rule in RULES}


def test_a_transposition_of_a_square_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<3x3xf32>",
            "%y = aten.permute.default(%x, [1, 0]) : (tensor<3x3xf32>) -> tensor<3x3xf32>",
            gives="tensor<3x3xf32>",
        ),
        ALL["remove-noop-permute"],
    )


def test_a_pad_that_moves_but_keeps_the_shape_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.constant_pad_nd.default(%x, [1, -1]) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["remove-noop-pad"],
    )


def test_a_roll_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.roll.default(%x, [1], [0]) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["remove-noop-roll"],
    )


def test_a_flip_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.flip.default(%x, [0]) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["remove-noop-flip"],
    )


def test_a_view_to_the_same_symbolic_shape_goes(apply: Any, method: Any):
    done = apply(
        method(
            '%x: tensor<?x3xf32, #stepwell.shape<["s0", 3]>>',
            '%a = aten.view.default(%x, [-1, 3]) : (tensor<?x3xf32, #stepwell.shape<["s0", 3]>>) -> tensor<?x3xf32, #stepwell.shape<["s0", 3]>>',
            '%y = aten.neg.default(%a) : (tensor<?x3xf32, #stepwell.shape<["s0", 3]>>) -> tensor<?x3xf32, #stepwell.shape<["s0", 3]>>',
            gives='tensor<?x3xf32, #stepwell.shape<["s0", 3]>>',
        ),
        *ALL.values(),
    )
    assert done.ops() == ["aten.neg.default"]


def test_a_used_mask_keeps_the_dropout(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%a, %y = aten.native_dropout.default(%x, 0.5, false) : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xi1>)",
            gives="tensor<2x3xi1>",
        ),
        ALL["remove-native-dropout"],
        "mask is used",
    )


def test_dropout_that_drops_everything_is_refused(refused: Any, method: Any):
    line = "%y = aten.dropout.default(%x, 1.0, true) : (tensor<4xf32>) -> tensor<4xf32>"
    refused(
        method("%x: tensor<4xf32>", line, gives="tensor<4xf32>"),
        ALL["remove-dropout"],
        "model.eval",
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
