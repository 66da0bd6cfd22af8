"""TypeAsToCopy: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.type_as_to_copy import TypeAsToCopy


def test_a_cast_to_the_dtype_it_has_is_not_respelled(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>, %z: tensor<4xf32>",
            "%y = aten.type_as.default(%x, %z) : (tensor<2x3xf32>, tensor<4xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        TypeAsToCopy(),
    )
