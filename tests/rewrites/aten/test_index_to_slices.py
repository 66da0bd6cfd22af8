"""IndexToSlices: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.index_to_slices import IndexToSlices


def test_scattered_indices_stay_a_gather(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<6xf32>",
            '%i = stepwell.weight <"i#zeros"> "constant" : tensor<6xi64>',
            "%y = aten.index_select.default(%x, 0, %i) : (tensor<6xf32>, tensor<6xi64>) -> tensor<6xf32>",
            gives="tensor<6xf32>",
        ),
        IndexToSlices(),
        "sequences",
    )


def test_indices_known_at_run_time_stay(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<6xf32>, %i: tensor<2xi64>",
            "%y = aten.index_select.default(%x, 0, %i) : (tensor<6xf32>, tensor<2xi64>) -> tensor<2xf32>",
            gives="tensor<2xf32>",
        ),
        IndexToSlices(),
    )


def test_an_index_behind_a_whole_axis_is_sliced(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x6xf32>",
            '%i = stepwell.weight <"i#rolled"> "constant" : tensor<6xi64>',
            "%y = aten.index.Tensor(%x, [none, %i]) : (tensor<2x6xf32>, tensor<6xi64>) -> tensor<2x6xf32>",
            gives="tensor<2x6xf32>",
        ),
        IndexToSlices(),
    )
    assert done.ops() == ["aten.slice.Tensor", "aten.slice.Tensor", "aten.cat.default"]
