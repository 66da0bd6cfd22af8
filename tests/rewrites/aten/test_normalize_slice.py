"""NormalizeSlice: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.decompositions.aten import slices
from stepwell.translate.lowerings.lowering import step

NORMALIZE = (step(slices.normalize_slice), step(slices.normalize_selection))


def test_a_slice_in_normal_form_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.slice.Tensor(%x, 1, 0, 2, 1) : (tensor<2x3xf32>) -> tensor<2x2xf32>",
            gives="tensor<2x2xf32>",
        ),
        slices,
    )


def test_an_element_before_the_last_of_a_symbolic_axis_is_refused(refused: Any, method: Any):
    refused(
        method(
            '%x: tensor<?x3xf32, #stepwell.shape<["s0", 3]>>',
            '%y = aten.select.int(%x, 0, -2) : (tensor<?x3xf32, #stepwell.shape<["s0", 3]>>) -> tensor<3xf32>',
            gives="tensor<3xf32>",
        ),
        slices,
        "the symbolic size s0",
    )


def test_the_last_element_of_a_symbolic_axis_is_a_slice_to_the_end(apply: Any, method: Any):
    done = apply(
        method(
            '%x: tensor<?x3xf32, #stepwell.shape<["s0", 3]>>',
            '%y = aten.select.int(%x, 0, -1) : (tensor<?x3xf32, #stepwell.shape<["s0", 3]>>) -> tensor<3xf32>',
            gives="tensor<3xf32>",
        ),
        *NORMALIZE,
    )
    assert done.ops() == ["aten.slice.Tensor", "aten.view.default"]


def test_bounds_beyond_the_axis_are_cut_to_it(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.slice.Tensor(%x, -1, -9, 9, 2) : (tensor<2x3xf32>) -> tensor<2x2xf32>",
            gives="tensor<2x2xf32>",
        ),
        *NORMALIZE,
    )
    assert done.ops() == ["aten.slice.Tensor"]


def test_narrow_is_a_slice(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.narrow.default(%x, 1, -2, 2) : (tensor<2x3xf32>) -> tensor<2x2xf32>",
            gives="tensor<2x2xf32>",
        ),
        *NORMALIZE,
    )
    assert done.ops() == ["aten.slice.Tensor"]


def test_selecting_from_an_axis_of_one_is_a_view(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<1x3xf32>",
            "%y = aten.select.int(%x, 0, 0) : (tensor<1x3xf32>) -> tensor<3xf32>",
            gives="tensor<3xf32>",
        ),
        *NORMALIZE,
    )
    assert done.ops() == ["aten.view.default"]
