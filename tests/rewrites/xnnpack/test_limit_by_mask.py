"""Choices by a constant mask are minima and maxima, exact for every number."""

import pytest
import torch
from eager import EXACT, assert_as_eager, assert_whole, lower
from rewrite_cases import cases
from torch import Tensor

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.attention.limit_by_mask import limit_by_mask


@pytest.mark.parametrize("fill", [0.0, -torch.inf, torch.inf, 3.5])
def test_infinities_and_signs_of_what_is_kept_stay(fill: float):
    mask, inf, far = torch.tensor([True, False] * 4), torch.inf, 3.4e38

    def choice(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x.masked_fill(mask, fill), torch.where(mask, x, y)

    x = torch.tensor([inf, inf, -inf, -inf, far, far, -0.5, -far])
    lowered = lower(choice, x, x.flip(0), numerics="finite")
    assert_whole(lowered)
    assert_as_eager(lowered, choice, x, x.flip(0), **EXACT)


test_limit_by_mask = cases(step(limit_by_mask))("""
a root that may be nan stays hidden -> refused: may make a NaN
    %z = aten.sqrt.default(%x: f32[2, 3])
    %y = aten.masked_fill.Scalar(%z, %m: constant "#causal" i1[2, 3], -inf)
a mask computed at run time stays -> applied 0 times
    %y = aten.masked_fill.Scalar(%z: f32[2, 3], %m: i1[2, 3], -inf)
a side of another dtype -> refused: XNNPACK does not support
    %y = aten.where.self(%m: constant "#causal" i1[2, 3], %x: f32[2, 3], %z: f64[2, 3])
integers -> refused: XNNPACK does not support
    %y = aten.masked_fill.Scalar(%x: i64[2, 3], %m: constant "#causal" i1[2, 3], 3)
seven axes -> refused: does not support
    %y = aten.masked_fill.Scalar(%x: f32[1, 1, 1, 1, 1, 2, 3], %m: constant "#causal" i1[2, 3], 0.0)
a fill that is no number -> refused: NaN
    %y = aten.masked_fill.Scalar(%x: f32[2, 3], %m: constant "#causal" i1[2, 3], nan)
a mask of all of an dynamic batch limits it -> applied once
    - %y = aten.masked_fill.Scalar(%x: f32[s0, 2, 3], %m: constant "#causal" i1[2, 3], 0.0)
    - %y = aten.masked_fill.Scalar(%x: f32[s0, 2, 3], %m: constant "#causal" i1[1, 3], 0.0)
a side of halves -> refused: one side has another dtype than the result
    %y = aten.where.self(%m: constant "#causal" i1[2, 3], %x: f16[2, 3], %z: f32[2, 3])
two numbers are folded and no limits -> refused: both sides are numbers
    %y = aten.where.ScalarOther(%m: constant "#causal" i1[2, 3], %n: constant "#ones" f32[], 2.0)
axes that a number brings are not lost -> refused: broadcast further
    %y = aten.where.self(%m: constant "#causal" i1[2, 3], %x: f32[2, 3], %n: constant "#ones" f32[1, 1, 1])
""")
