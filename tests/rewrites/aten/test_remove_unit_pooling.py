"""RemoveUnitPooling: what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.rewrites.aten.remove_unit_pooling import RemoveUnitPooling


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
    refused(
        method(
            "%x: tensor<1x2x4x4xf32>",
            f"%y = {call} : (tensor<1x2x4x4xf32>) -> tensor<{result}xf32>",
            gives=f"tensor<{result}xf32>",
        ),
        RemoveUnitPooling(),
        reason,
    )
