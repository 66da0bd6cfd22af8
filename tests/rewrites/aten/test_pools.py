"""Pools in one form, and what they are not."""

import pytest
import torch
from eager import assert_as_eager, assert_whole, lower
from rewrite_cases import cases
from torch import nn

from stepwell.translate.decompositions import pools
from stepwell.translate.lowerings.lowering import step

test_pools = cases(pools)("""
normalize-pooling: indices that are used keep the op -> refused: indices
    %a, %y = aten.max_pool2d_with_indices.default(%x: f32[1, 1, 4, 4], [2, 2]); return %y
normalize-pooling: a missing stride is the kernel s size -> aten.avg_pool2d.default
    %y = aten.avg_pool2d.default(%x: f32[1, 1, 4, 6], [2, 3])
unit-pooling-to-slice: steps are those of the windows -> aten.slice.Tensor, aten.slice.Tensor
    - %y = aten.max_pool2d.default(%x: f32[1, 2, 5, 4], [1, 1], [2, 2])
    - %y = aten.max_pool2d.default(%x: f32[1, 2, 5, 4], [1, 1], [3, 3], [0, 0], [2, 2])
    - %y = aten.max_pool2d.default(%x: f32[1, 2, 5, 4], [1, 1], [2, 3], [0, 0], [1, 1], true)
    - %y = aten.max_pool2d.default(%x: f32[1, 2, 5, 4], [1], [2])
unit-pooling-to-slice: an average of one element is that element -> aten.slice.Tensor, aten.slice.Tensor
    - %y = aten.avg_pool2d.default(%x: f32[1, 2, 5, 4], [1, 1], [2, 3])
    - %y = aten.avg_pool2d.default(%x: f32[1, 2, 5, 4], [1, 1], [2, 3], [0, 0], true, false, 1)
unit-pooling-to-slice: an element that is divided -> refused: divisor_override is 2
    %y = aten.avg_pool2d.default(%x: f32[1, 2, 5, 4], [1, 1], [2, 3], [0, 0], false, true, 2)
unit-pooling-to-slice: other windows and steps of one -> unchanged
    - %y = aten.max_pool2d.default(%x: f32[1, 2, 5, 4], [2, 1], [2, 2])
    - %y = aten.max_pool2d.default(%x: f32[1, 2, 5, 4], [1, 1], [1, 1])
    - %y = aten.max_pool2d.default(%x: f32[1, 2, 5, 4], [1, 1])
unit-pooling-to-slice: a symbolic size -> refused: symbolic
    %y = aten.max_pool2d.default(%x: f32[1, 2, 2*s0, 4], [1, 1], [2, 1])
unit-pooling-to-slice: a batch and an axis of steps of one may be open -> aten.slice.Tensor
    %y = aten.max_pool2d.default(%x: f32[s1, 2, s0, 4], [1, 1], [1, 2])
average-by-convolution: a counted padding becomes one of the convolution -> aten.convolution.default
    %y = aten.avg_pool2d.default(%x: f32[1, 2, 8, 8], [3, 3], [1, 1], [1, 1])
average-by-convolution: windows of other cells -> refused: count fewer cells
    %y = aten.avg_pool2d.default(%x: f32[1, 2, 8, 8], [3, 3], [1, 1], [1, 1], false, false)
average-by-convolution: windows of other cells -> refused: extend past the edge
    %y = aten.avg_pool2d.default(%x: f32[1, 2, 8, 8], [3, 3], [2, 2], [0, 0], true)
average-by-convolution: windows of other cells -> refused: kernel for 16 cells
    %y = aten.avg_pool2d.default(%x: f32[1, 2, 8, 8], [4, 4], [4, 4])
average-by-convolution: averages of doubles -> refused: float32 or float16
    %y = aten.avg_pool2d.default(%x: f64[1, 2, 8, 8], [3, 3], [1, 1], [1, 1])
adaptive-pool-to-pool: windows of several lengths -> refused: several lengths
    %y = aten.adaptive_avg_pool2d.default(%x: f32[1, 1, 5, 5], [2, 2])
adaptive-pool-to-pool: indices that are used keep the op -> refused: indices
    %a, %y = aten.adaptive_max_pool2d.default(%x: f32[1, 1, 4, 4], [2, 2]); return %y
adaptive-pool-to-pool: one axis to several elements -> refused: 1 axes
    %y = aten.adaptive_avg_pool1d.default(%x: f32[1, 1, 4], [2])
adaptive-pool-to-pool: a pool to nothing has no windows -> refused: empty
    %y = aten.adaptive_avg_pool2d.default(%x: f32[1, 3, 8, 8], [0, 2])
""")


@pytest.mark.parametrize(("given", "size"), [(5, 3), (2, 6), (3, 3), (7, 4)])
def test_an_uneven_average_is_means_of_slices(given: int, size: int):
    """Where windows have several lengths, or one element."""
    pool, x = nn.AdaptiveAvgPool2d(size), torch.randn(1, 3, given, given)
    x[0, 0, 0, 0], x[0, 1, -1, -1] = torch.nan, torch.inf
    lowered = lower(nn.Sequential(nn.ReLU(), pool), x)
    assert_whole(lowered)
    assert_as_eager(lowered, lambda x: pool(x.relu()), x)


test_an_axis_known_only_at_run_time = cases(step(pools.adaptive_pool_to_pool))("""
an axis before or after of unknown length -> refused: symbolic
    - %y = aten.adaptive_avg_pool2d.default(%x: f32[1, 3, n, 2], [4, 2])
    - %y = aten.adaptive_avg_pool2d.default(%x: f32[1, 3, 8, 2], [%n: int<n>, 2])
""")
