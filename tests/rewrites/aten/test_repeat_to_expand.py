"""RepeatToExpand: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.decompositions.aten import views
from stepwell.translate.lowerings.lowering import step


def test_interleaving_all_elements_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.repeat_interleave.self_int(%x, 2) : (tensor<2x3xf32>) -> tensor<12xf32>",
            gives="tensor<12xf32>",
        ),
        step(views.repeat_to_expand),
        "flattens",
    )


def test_a_longer_axis_is_repeated_as_a_whole(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.tile.default(%x, [2]) : (tensor<2x3xf32>) -> tensor<2x6xf32>",
            gives="tensor<2x6xf32>",
        ),
        step(views.repeat_to_expand),
    )
    assert done.ops() == ["aten.view.default", "aten.expand.default", "aten.view.default"]


def test_interleaving_repeats_each_element(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.repeat_interleave.self_int(%x, 2, -1) : (tensor<2x3xf32>) -> tensor<2x6xf32>",
            gives="tensor<2x6xf32>",
        ),
        step(views.repeat_to_expand),
    )
    assert done.ops() == ["aten.view.default", "aten.expand.default", "aten.view.default"]


LATE = 'tensor<2x?xf32, #stepwell.shape<[2, "n"]>>'


def test_sizes_that_are_not_repeated_may_be_symbolic(apply: Any, method: Any):
    wide = 'tensor<6x?xf32, #stepwell.shape<[6, "n"]>>'
    line = f"%y = aten.repeat_interleave.self_int(%x, 3, 0) : ({LATE}) -> {wide}"
    assert apply(method(f"%x: {LATE}", line, gives=wide), step(views.repeat_to_expand)).count == 1


def test_an_axis_of_symbolic_size_is_not_repeated(refused: Any, method: Any):
    long = 'tensor<2x?xf32, #stepwell.shape<[2, "3*n"]>>'
    for call in ("repeat.default(%x, [1, 3])", "repeat_interleave.self_int(%x, 3, 1)"):
        line = f"%y = aten.{call} : ({LATE}) -> {long}"
        refused(
            method(f"%x: {LATE}", line, gives=long), step(views.repeat_to_expand), "symbolic size"
        )


def test_beside_two_open_sizes_parts_stand_side_by_side(apply: Any, method: Any):
    image = 'tensor<2x?x?xf32, #stepwell.shape<[2, "h", "w"]>>'
    wide = 'tensor<6x?x?xf32, #stepwell.shape<[6, "h", "w"]>>'
    line = f"%y = aten.repeat_interleave.self_int(%x, 3, 0) : ({image}) -> {wide}"
    done = apply(method(f"%x: {image}", line, gives=wide), step(views.repeat_to_expand))
    assert done.ops() == ["aten.slice.Tensor"] * 2 + ["aten.cat.default"]
    line = f"%y = aten.repeat.default(%x, [3, 1, 1]) : ({image}) -> {wide}"
    done = apply(method(f"%x: {image}", line, gives=wide), step(views.repeat_to_expand))
    assert done.ops() == ["aten.cat.default"]
