"""StridedSliceToView: starts, stops and steps of every kind, and what it leaves alone."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases

from stepwell.translate.decompositions import views
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


test_strided_slice_to_view = cases(
    views,
    """
strided-slice-to-view: whole periods need no padding -> aten.view.default, aten.slice.Tensor, aten.view.default
    %y = aten.slice.Tensor(%x: f32[2, 9], 1, 2, 9, 3)
strided-slice-to-view: a step of one -> unchanged
    %y = aten.slice.Tensor(%x: f32[2, 8], 1, 1, 5, 1)
strided-slice-to-view: an empty slice -> refused: the slice is empty
    %y = aten.slice.Tensor(%x: f32[2, 8], 1, 5, 5, 2)
strided-slice-to-view: a symbolic axis -> refused: symbolic
    %y = aten.slice.Tensor(%x: f32[8, 2*s0], 1, 0, 9223372036854775807, 2)
""",
)
