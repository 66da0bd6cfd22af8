"""StridedSliceToView: starts, stops and steps of every kind, and what it leaves alone."""

from typing import Any

import pytest
import torch

from stepwell.translate.decompositions.aten import views
from stepwell.translate.lowerings.lowering import step as step_of


def taken(size: int, start: int, stop: int, step: int, method: Any) -> str:
    count = len(range(size)[start:stop:step])
    return method(
        f"%x: tensor<2x{size}xf32>",
        f"%y = aten.slice.Tensor(%x, 1, {start}, {stop}, {step})"
        f" : (tensor<2x{size}xf32>) -> tensor<2x{count}xf32>",
        gives=f"tensor<2x{count}xf32>",
    )


@pytest.mark.parametrize("size", [7, 8])
@pytest.mark.parametrize("bounds", [(0, 100), (1, 100), (2, 6), (-5, -1), (3, 4), (-100, 5)])
@pytest.mark.parametrize("step", [2, 3, 9])
def test_every_window_takes_what_torch_takes(
    size: int, bounds: tuple[int, int], step: int, apply: Any, method: Any
):
    done = apply(taken(size, *bounds, step, method), step_of(views.strided_slice_to_view))
    assert done.count == 1
    x = torch.randn(2, size)
    assert torch.equal(done.program.run(x)[0], x[:, bounds[0] : bounds[1] : step])


def test_whole_periods_need_no_padding(apply: Any, method: Any):
    done = apply(taken(9, 2, 9, 3, method), step_of(views.strided_slice_to_view))
    assert done.ops() == ["aten.view.default", "aten.slice.Tensor", "aten.view.default"]


def test_a_step_of_one_is_left_alone(refused: Any, method: Any):
    refused(taken(8, 1, 5, 1, method), step_of(views.strided_slice_to_view))


def test_an_empty_slice_is_refused(refused: Any, method: Any):
    refused(taken(8, 5, 5, 2, method), step_of(views.strided_slice_to_view), "the slice is empty")


def test_a_symbolic_axis_is_refused(refused: Any, method: Any):
    given = 'tensor<8x?xf32, #stepwell.shape<[8, "2*s0"]>>'
    made = 'tensor<8x?xf32, #stepwell.shape<[8, "s0"]>>'
    text = method(
        f"%x: {given}",
        f"%y = aten.slice.Tensor(%x, 1, 0, 9223372036854775807, 2) : ({given}) -> {made}",
        gives=made,
    )
    refused(text, step_of(views.strided_slice_to_view), "symbolic")
