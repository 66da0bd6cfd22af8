"""`index-to-slices`: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.decompositions.aten import slices
from stepwell.translate.lowerings.lowering import step


def test_scattered_indices_stay_a_gather(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<6xf32>",
            '%i = stepwell.weight <"i#zeros"> "constant" : tensor<6xi64>',
            "%y = aten.index_select.default(%x, 0, %i) : (tensor<6xf32>, tensor<6xi64>) -> tensor<6xf32>",
            gives="tensor<6xf32>",
        ),
        step(slices.index_to_slices),
        "form 6 runs",
    )


def test_indices_known_at_run_time_stay(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<6xf32>, %i: tensor<2xi64>",
            "%y = aten.index_select.default(%x, 0, %i) : (tensor<6xf32>, tensor<2xi64>) -> tensor<2xf32>",
            gives="tensor<2xf32>",
        ),
        step(slices.index_to_slices),
    )


def test_an_index_behind_a_whole_axis_is_sliced(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x6xf32>",
            '%i = stepwell.weight <"i#rolled"> "constant" : tensor<6xi64>',
            "%y = aten.index.Tensor(%x, [none, %i]) : (tensor<2x6xf32>, tensor<6xi64>) -> tensor<2x6xf32>",
            gives="tensor<2x6xf32>",
        ),
        step(slices.index_to_slices),
    )
    assert done.ops() == ["aten.slice.Tensor", "aten.slice.Tensor", "aten.cat.default"]


LATE = 'tensor<?x6xf32, #stepwell.shape<["n", 6]>>'
NEAR_MISSES = {
    "two indices": ("tensor<6x6xf32>", "%i, %i", "6xi64", "tensor<6xf32>", ""),
    "a symbolic axis": (LATE, "none, %i", "6xi64", LATE, "symbolic"),
    "a matrix": ("tensor<6xf32>", "%i", "2x3xi64", "tensor<2x3xf32>", "not a vector"),
    "a mask": ("tensor<3xf32>", "%i", "3xi1", 'tensor<?xf32, #stepwell.shape<["u0"]>>', "a mask"),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_selection_stays_one_by(name: str, refused: Any, method: Any):
    given, indices, held, made, reason = NEAR_MISSES[name]
    how = "i#ones" if held == "3xi1" else "i"
    index = f'%i = stepwell.weight <"{how}"> "constant" : tensor<{held}>'
    types = f"({given}{f', tensor<{held}>' * indices.count('%i')}) -> {made}"
    call = f"%y = aten.index.Tensor(%x, [{indices}]) : {types}"
    refused(method(f"%x: {given}", index, call, gives=made), step(slices.index_to_slices), reason)
