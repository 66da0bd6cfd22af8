"""ChooseByRank: `topk` by arithmetic is exact, equal numbers in order, and what it leaves alone."""

from typing import Any

import pytest
import torch
from eager import EXACT, Model, assert_as_eager, assert_whole, lower
from rewrite_cases import cases
from torch import Tensor

import stepwell
from stepwell.translate.rewrites.experts.choose_by_rank import ChooseByRank

INF = torch.inf


def choice(taken: int, largest: bool = True) -> Model:
    """The greatest (or least) numbers, and what stands at their places."""

    def chosen(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        values, places = x.topk(taken, largest=largest)
        return values, y.gather(-1, places)

    return chosen


def lowered(model: Model, *inputs: Tensor, **options: Any) -> stepwell.Lowered:
    done = lower(model, *inputs, **options)
    assert_whole(done)
    return done


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("taken", [1, 3, 8])
def test_neighboring_numbers_of_all_sizes_are_told_apart(taken: int, largest: bool):
    tiny, far = torch.finfo(torch.float32).tiny, 2.0**60
    x = torch.tensor([1.0, 1 + 2**-23, 0.0, tiny, tiny * (1 + 2**-23), -tiny, far, -far])
    x = torch.stack([x, x.flip(0), x.roll(3)]).view(3, 1, 8)
    y = torch.arange(24.0).view(3, 1, 8) - 7.5
    model = choice(taken, largest)
    assert_as_eager(lowered(model, x, y, numerics="finite"), model, x, y, **EXACT)


def test_of_equal_numbers_the_first_comes_first_and_none_twice():
    x = torch.tensor([[0.5, 2.0, 0.5, 2.0, 0.5], [0.0, -0.0, 0.0, 0.0, 0.0]])
    y = torch.arange(5.0).expand(2, 5).contiguous()
    values, places = lowered(choice(4), x, y, numerics="finite").run(x, y)
    assert torch.equal(values, torch.tensor([[2.0, 2.0, 0.5, 0.5], [0.0] * 4]))
    assert torch.equal(places, torch.tensor([[1.0, 3.0, 0.0, 2.0], [0.0, 1.0, 2.0, 3.0]]))


@pytest.mark.parametrize("largest", [True, False])
def test_few_of_many_are_taken_out_one_by_one(largest: bool):
    x = torch.randint(-9, 9, (7, 100)).float()
    x[:, ::7] *= torch.finfo(torch.float32).tiny
    y = torch.arange(100.0).expand(7, 100).contiguous()
    values, places = lowered(choice(3, largest), x, y, numerics="finite").run(x, y)
    assert torch.equal(values, x.topk(3, largest=largest).values)
    ordered = x.sort(stable=True, descending=largest).indices[:, :3]
    assert torch.equal(places, ordered.float())


def test_a_row_of_nan_stays_one_and_the_others_are_not_touched():
    def routed(x: Tensor) -> Tensor:
        return x.softmax(-1).topk(2).values

    x = torch.randn(4, 6)
    x[1, 3], x[2, 0] = torch.nan, INF
    assert_as_eager(lowered(routed, x), routed, x)


def test_numbers_that_nothing_bounds_stay_with_the_kernel():
    inputs = torch.randn(3, 8), torch.randn(3, 8)
    assert lower(choice(2), *inputs).report.outside["aten.topk.default"] == 1


def test_a_constant_nan_that_is_not_chosen_is_not_seen():
    def looked_up(x: Tensor) -> Tensor:
        table = torch.tensor([[1.0], [torch.nan], [2.0], [3.0]])
        return table[x.softmax(-1).topk(2).indices.view(-1)]

    x = torch.tensor([[3.0, 0.0, 2.0, 1.0]])
    assert_as_eager(lower(looked_up, x), looked_up, x, **EXACT)


test_choose_by_rank = cases(ChooseByRank)("""
another axis -> refused: another axis
    %y, %i = aten.topk.default(%x: f32[4, 3], 2, 0); return %y
what ranks do not say -> refused: too small a range
    %y, %i = aten.topk.default(%x: f16[3, 4], 2); return %y
a long row -> refused: 2 of 999 elements by arithmetic
    %y, %i = aten.topk.default(%x: f32[3, 999], 2); return %y
places that are read as integers -> refused: read by aten.add.Scalar
    %v, %p = aten.topk.default(%x: f32[3, 4], 2); %y = aten.add.Scalar(%p, 1)
places along another axis than they were chosen on -> refused: read by aten.gather
    %v, %p = aten.topk.default(%x: f32[3, 4], 2); %y = aten.gather.default(%t: f32[9, 2], 0, %p)
""")


test_choose_by_rank_unrun = cases(ChooseByRank, run=False)("""
of no rows -> refused: a dimension is 0
    %y, %i = aten.topk.default(%x: f32[0, 4], 2); return %y
of a size that nobody knows -> refused: a dimension is not known
    %y, %i = aten.topk.default(%x: f32[?, 4], 2) -> (f32[?, 2], i64[?, 2]); return %y
of rows of any length -> refused: the number of elements to choose from
    %y, %i = aten.topk.default(%x: f32[3, s0], 2); return %y
places of any width -> refused: the chosen indices are read by aten.gather
    %v, %i = aten.topk.default(%x: f32[3, 4], 2); %j = aten.view.default(%i, [3, 2, 1])
    %n = aten.sym_size.int(%z: f32[3, 4, s0], 2); %k = aten.expand.default(%j, [-1, -1, %n])
    %y = aten.gather.default(%z, 1, %k)
of one number -> refused: the operand has no dimension
    %y, %i = aten.topk.default(%x: f32[], 1); return %y
what arithmetic does not choose -> refused: the op chooses no elements
    %y, %i = aten.topk.default(%x: f32[4], 0); return %y
as many as are known at run time -> refused: known only at run time
    %n = aten.sym_size.int(%w: f32[2], 0); %y, %i = aten.topk.default(%x: f32[4], %n); return %y
many of a long row -> refused: taking 40 of 200
    %y, %i = aten.topk.default(%x: f32[200], 40); return %y
places that are a result -> refused: read by func.return
    %v, %y = aten.topk.default(%x: f32[4], 2); return %y
halves at the places -> refused: the chosen indices are read by aten.gather
    %v, %i = aten.topk.default(%x: f32[3, 4], 2); %y = aten.gather.default(%z: f16[3, 4], 1, %i)
any number of rows at the places -> refused: the chosen indices are read by aten.gather
    %v, %i = aten.topk.default(%x: f32[3, 4], 2); %y = aten.gather.default(%z: f32[s0, 4], 1, %i)
places in a longer row -> refused: the chosen indices are read by aten.gather
    %v, %i = aten.topk.default(%x: f32[3, 4], 2); %y = aten.gather.default(%z: f32[3, 5], 1, %i)
places along the rows -> refused: the chosen indices are read by aten.gather
    %v, %i = aten.topk.default(%x: f32[3, 4], 2); %y = aten.gather.default(%z: f32[4, 2], 0, %i)
places that differ in width -> refused: the chosen indices are read by aten.gather
    %v, %i = aten.topk.default(%x: f32[3, 4], 2); %e = aten.view.default(%i, [3, 1, 2])
    %f = aten.expand.default(%e, [3, 2, 2]); %y = aten.gather.default(%z: f32[3, 4, 2], 1, %f)
rows added to more than is chosen from -> refused: the chosen indices are read by aten.scatter_add
    %v, %i = aten.topk.default(%x: f32[3, 4], 2)
    %y = aten.scatter_add.default(%z: constant "z#zeros" f32[3, 6], 1, %i, %r: f32[3, 2])
rows longer than what is taken -> refused: the chosen indices are read by aten.scatter_add
    %v, %i = aten.topk.default(%x: f32[3, 4], 2)
    %y = aten.scatter_add.default(%z: constant "z#zeros" f32[3, 4], 1, %i, %r: f32[3, 5])
a table's rows in two axes -> refused: the chosen indices are read by aten.index
    %v, %i = aten.topk.default(%x: f32[3, 4], 2); %y = aten.index.Tensor(%w: weight f32[4, 5], [%i])
a longer table -> refused: the chosen indices are read by aten.index
    %v, %i = aten.topk.default(%x: f32[3, 4], 2); %p = aten.view.default(%i, [6])
    %y = aten.index.Tensor(%w: weight f32[7, 5], [%p])
a table of matrices -> refused: the chosen indices are read by aten.index
    %v, %i = aten.topk.default(%x: f32[3, 4], 2); %p = aten.view.default(%i, [6])
    %y = aten.index.Tensor(%w: weight f32[4, 5, 6], [%p])
places in rows of another length -> refused: the chosen indices are read by aten.gather
    %v, %i = aten.topk.default(%x: f32[3, 4], 2); %p = aten.view.default(%i, [2, 3])
    %y = aten.gather.default(%z: f32[2, 4], 1, %p)
a table of halves -> refused: the chosen indices are read by aten.index
    %v, %i = aten.topk.default(%x: f32[3, 4], 2); %p = aten.view.default(%i, [6])
    %y = aten.index.Tensor(%w: weight f16[4, 5], [%p])
a table's columns -> refused: the chosen indices are read by aten.index
    %v, %i = aten.topk.default(%x: f32[3, 4], 2); %p = aten.view.default(%i, [6])
    %y = aten.index.Tensor(%w: weight f32[5, 4], [none, %p])
""")


def test_numbers_that_are_never_nan_lose_none(asked: Any):
    assert asked(
        """
        %x = aten._to_copy.default(%t: i1[3, 4], dtype=f32)
        %y, %i = aten.topk.default(%x, 2)
        return %y
        """,
        ChooseByRank(),
        "xnnpack",
        numerics="strict",
    ) == (1, [])
