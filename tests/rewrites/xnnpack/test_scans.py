"""Running sums as additions."""

import pytest
import torch
from eager import EXACT, Model, assert_as_eager, assert_whole, lower
from rewrite_cases import cases
from torch import Tensor
from torch.export import Dim

from stepwell.translate.decompositions import scans
from stepwell.translate.decompositions.products import stacked_sum_to_additions
from stepwell.translate.lowerings.lowering import step


def running(at: int) -> Model:
    return lambda x: x.cumsum(at)


@pytest.mark.parametrize(("shape", "at"), [((3, 7), -1), ((5, 4), 0), ((2, 1, 6), 1), ((8,), 0)])
def test_integers_add_up_exactly_along_any_axis(shape: tuple[int, ...], at: int):
    x = torch.randint(-9, 9, shape).float()
    lowered = lower(running(at), x)
    assert not lowered.report.outside
    assert_as_eager(lowered, running(at), x, **EXACT)


def test_the_batch_may_be_open():
    given = [torch.randint(-9, 9, (rows, 7)).float() for rows in (3, 1, 8)]
    lowered = lower(running(1), given[0], dynamic={0: Dim("b", min=1, max=8)})
    assert not lowered.report.outside
    for x in given:
        assert_as_eager(lowered, running(1), x, **EXACT)


def test_what_is_not_finite_goes_forwards_only():
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([[inf, 1, 2, -inf, 0], [0, 1, nan, 2, 3], [0, 0, 0, 0, -inf]])
    lowered = lower(running(-1), x)
    assert lowered.report.delegates == 1
    assert_as_eager(lowered, running(-1), x)


test_cumsum_to_additions = cases(scans)("""
cumsum-to-additions: what is no short sum of singles -> refused: rounds once
    %y = aten.cumsum.default(%x: f16[2, 3], -1)
cumsum-to-additions: what is no short sum of singles -> refused: 13 additions
    %y = aten.cumsum.default(%x: f32[2, 5000], -1)
cumsum-to-additions: what is no short sum of singles -> refused: no upper bound
    %y = aten.cumsum.default(%x: f32[2, s], -1)
cumsum-to-additions: what is no short sum of singles -> refused: not int64
    %y = aten.cumsum.default(%x: i64[2, 3], -1)
""")


def skips(x: Tensor) -> tuple[Tensor, Tensor]:
    parts = torch.stack([x, torch.relu(x), torch.sigmoid(x)], dim=1)
    return parts.sum(dim=1), torch.stack([x, torch.tanh(x)]).mean(0)


def test_stacked_values_of_any_length_are_summed_up_in_one_delegate() -> None:
    dynamic = {0: Dim("batch", min=2, max=8), 2: Dim("length", min=2, max=64)}
    lowered = lower(skips, torch.randn(3, 4, 9), dynamic=dynamic)
    assert_whole(lowered)
    for x in (torch.randn(2, 4, 5), torch.randn(5, 4, 33)):
        assert_as_eager(lowered, skips, x)


test_stacked_sum_to_additions = cases(step(stacked_sum_to_additions))("""
another reduction -> refused: other axes
    - %s = aten.cat.default([%a: f32[1, 3], %b: f32[1, 3]], 0); %y = aten.sum.dim_IntList(%s, [1], true)
    - %s = aten.cat.default([%a: f32[1, 3], %b: f32[1, 3]], 0); %y = aten.sum.dim_IntList(%s, [0, 1], true)
    - %s = aten.cat.default([%a: f32[1, 3], %b: f32[1, 3]], 0); %y = aten.sum.dim_IntList(%s, [0])
another reduction -> refused: several elements
    - %s = aten.cat.default([%a: f32[2, 3], %b: f32[2, 3]], 0); %y = aten.sum.dim_IntList(%s, [0], true)
    - %s = aten.cat.default([%a: f32[1, 3], %b: f32[2, 3]], 0); %y = aten.sum.dim_IntList(%s, [0], true)
another reduction -> refused: float32
    %s = aten.cat.default([%a: f16[1, 3], %b: f16[1, 3]], 0)
    %y = aten.sum.dim_IntList(%s, [0], true)
a long chain is no gain -> applied once
    %s = aten.cat.default([%a: f32[1, 3], %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a], 0)
    %y = aten.sum.dim_IntList(%s, [0], true)
a long chain is no gain -> refused: more than 32
    %s = aten.cat.default([%a: f32[1, 3], %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a, %a], 0)
    %y = aten.sum.dim_IntList(%s, [0], true)
what is joined for others too is not added up as well -> refused: read elsewhere
    %s = aten.cat.default([%a: f32[1, 3], %b: f32[1, 3]], 0)
    %r = aten.sum.dim_IntList(%s, [0], true); %y = aten.mul.Tensor(%s, %r)
a sum of anything else is not looked at -> unchanged
    %y = aten.sum.dim_IntList(%a: f32[2, 3], [0], true)
views of one shape are added up before they are views -> aten.add.Tensor, aten.view.default
    %a = aten.view.default(%x: f32[2, 3], [1, 6]); %b = aten.view.default(%z: f32[2, 3], [1, 6])
    %s = aten.cat.default([%a, %b], 0); %y = aten.sum.dim_IntList(%s, [0], true)
views of one shape are added up before they are views -> aten.view.default, aten.view.default, aten.add.Tensor
    %a = aten.view.default(%x: f32[2, 3], [1, 6]); %b = aten.view.default(%z: f32[3, 2], [1, 6])
    %s = aten.cat.default([%a, %b], 0); %y = aten.sum.dim_IntList(%s, [0], true)
""")
