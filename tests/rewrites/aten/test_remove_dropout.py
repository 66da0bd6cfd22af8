"""RemoveDropout: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.remove_dropout import RemoveDropout


def test_a_used_mask_keeps_the_dropout(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%a, %y = aten.native_dropout.default(%x, 0.5, false) : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xi1>)",
            gives="tensor<2x3xi1>",
        ),
        RemoveDropout(),
        "mask is used",
    )


def test_dropout_that_drops_everything_is_refused(refused: Any, method: Any):
    line = "%y = aten.dropout.default(%x, 1.0, true) : (tensor<4xf32>) -> tensor<4xf32>"
    refused(method("%x: tensor<4xf32>", line, gives="tensor<4xf32>"), RemoveDropout(), "model.eval")
