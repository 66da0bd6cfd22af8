"""RepeatToExpand: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.repeat_to_expand import RepeatToExpand


def test_interleaving_all_elements_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.repeat_interleave.self_int(%x, 2) : (tensor<2x3xf32>) -> tensor<12xf32>",
            gives="tensor<12xf32>",
        ),
        RepeatToExpand(),
        "flattens",
    )


def test_a_longer_axis_is_repeated_as_a_whole(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.tile.default(%x, [2]) : (tensor<2x3xf32>) -> tensor<2x6xf32>",
            gives="tensor<2x6xf32>",
        ),
        RepeatToExpand(),
    )
    assert done.ops() == ["aten.view.default", "aten.expand.default", "aten.view.default"]


def test_interleaving_repeats_each_element(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.repeat_interleave.self_int(%x, 2, -1) : (tensor<2x3xf32>) -> tensor<2x6xf32>",
            gives="tensor<2x6xf32>",
        ),
        RepeatToExpand(),
    )
    assert done.ops() == ["aten.view.default", "aten.expand.default", "aten.view.default"]
