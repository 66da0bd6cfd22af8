"""ChooseByRank: `topk` by arithmetic is exact, equal numbers in order, and what it leaves alone."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import export

import stepwell
from stepwell.translate.rewrites.experts.choose_by_rank import ChooseByRank

INF = torch.inf


class Choice(nn.Module):
    """The greatest (or least) numbers, and what stands at their places."""

    def __init__(self, taken: int, largest: bool = True) -> None:
        super().__init__()
        self.taken, self.largest = taken, largest

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        values, places = x.topk(self.taken, largest=self.largest)
        return values, y.gather(-1, places)


def lowered(module: nn.Module, *inputs: Tensor, **options: Any) -> stepwell.Lowered:
    done = stepwell.lower(export(module, inputs), "xnnpack", **options)
    assert (done.report.delegates, dict(done.report.outside)) == (1, {})
    return done


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("taken", [1, 3, 8])
def test_neighboring_numbers_of_all_sizes_are_told_apart(taken: int, largest: bool):
    tiny, far = torch.finfo(torch.float32).tiny, 2.0**60
    x = torch.tensor([1.0, 1 + 2**-23, 0.0, tiny, tiny * (1 + 2**-23), -tiny, far, -far])
    x = torch.stack([x, x.flip(0), x.roll(3)]).view(3, 1, 8)
    y = torch.arange(24.0).view(3, 1, 8) - 7.5
    module = Choice(taken, largest)
    found = lowered(module, x, y, numerics="finite").run(x, y)
    for one, other in zip(found, module(x, y), strict=True):
        assert torch.equal(one, other)


def test_of_equal_numbers_the_first_comes_first_and_none_twice():
    x = torch.tensor([[0.5, 2.0, 0.5, 2.0, 0.5], [0.0, -0.0, 0.0, 0.0, 0.0]])
    y = torch.arange(5.0).expand(2, 5).contiguous()
    values, places = lowered(Choice(4), x, y, numerics="finite").run(x, y)
    assert torch.equal(values, torch.tensor([[2.0, 2.0, 0.5, 0.5], [0.0] * 4]))
    assert torch.equal(places, torch.tensor([[1.0, 3.0, 0.0, 2.0], [0.0, 1.0, 2.0, 3.0]]))


@pytest.mark.parametrize("largest", [True, False])
def test_few_of_many_are_taken_out_one_by_one(largest: bool):
    x = torch.randint(-9, 9, (7, 100)).float()
    x[:, ::7] *= torch.finfo(torch.float32).tiny
    y = torch.arange(100.0).expand(7, 100).contiguous()
    values, places = lowered(Choice(3, largest), x, y, numerics="finite").run(x, y)
    assert torch.equal(values, x.topk(3, largest=largest).values)
    ordered = x.sort(stable=True, descending=largest).indices[:, :3]
    assert torch.equal(places, ordered.float())


class Routed(nn.Module):
    """The greatest of a softmax, as a router takes them."""

    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(-1).topk(2).values


def test_a_row_of_nan_stays_one_and_the_others_are_not_touched():
    x = torch.randn(4, 6)
    x[1, 3], x[2, 0] = torch.nan, INF
    found, wanted = lowered(Routed(), x).run(x)[0], Routed()(x)
    assert torch.equal(found.isnan(), wanted.isnan())
    torch.testing.assert_close(found, wanted, equal_nan=True)


def test_numbers_that_nothing_bounds_stay_with_the_kernel():
    inputs = torch.randn(3, 8), torch.randn(3, 8)
    report = stepwell.lower(export(Choice(2), inputs), "xnnpack").report
    assert report.outside["aten.topk.default"] == 1


class Table(nn.Module):
    """Rows of a table that has a NaN in one."""

    def forward(self, x: Tensor) -> Tensor:
        table = torch.tensor([[1.0], [torch.nan], [2.0], [3.0]])
        return table[x.softmax(-1).topk(2).indices.view(-1)]


def test_a_constant_nan_that_is_not_chosen_is_not_seen():
    x = torch.tensor([[3.0, 0.0, 2.0, 1.0]])
    (found,) = stepwell.lower(export(Table(), (x,)), "xnnpack").run(x)
    assert torch.equal(found, torch.tensor([[1.0], [2.0]]))


S, V, P = "tensor<3x4xf32>", "tensor<3x2xf32>", "tensor<3x2xi64>"


def topk(given: str = S, values: str = V, places: str = P, rest: str = "2") -> str:
    return f"%y, %i = aten.topk.default(%x, {rest}) : ({given}) -> ({values}, {places})"


@pytest.mark.parametrize(
    ("given", "values", "places", "rest", "reason"),
    [
        ("tensor<4x3xf32>", "tensor<2x3xf32>", "tensor<2x3xi64>", "2, 0", "another axis"),
        ("tensor<3x4xf16>", "tensor<3x2xf16>", P, "2", "too small a range"),
        ("tensor<3x999xf32>", V, P, "2", "2 of 999 by arithmetic"),
    ],
    ids=["another axis", "halves", "a long row"],
)
def test_what_ranks_do_not_say_stays(
    given: str, values: str, places: str, rest: str, reason: str, refused: Any, method: Any
):
    text = method(f"%x: {given}", topk(given, values, places, rest), gives=values)
    refused(text, ChooseByRank(), reason)


def test_places_that_are_read_as_integers_stay(refused: Any, method: Any):
    line = topk().replace("%y, %i", "%v, %p")
    sum_ = f"%y = aten.add.Scalar(%p, 1) : ({P}) -> {P}"
    refused(method(f"%x: {S}", line, sum_, gives=P), ChooseByRank(), "read by aten.add.Scalar")


def test_places_along_another_axis_than_they_were_chosen_on_stay(refused: Any, method: Any):
    line = topk().replace("%y, %i", "%v, %p")
    gather = f"%y = aten.gather.default(%t, 0, %p) : (tensor<9x2xf32>, {P}) -> {V}"
    text = method(f"%x: {S}, %t: tensor<9x2xf32>", line, gather, gives=V)
    refused(text, ChooseByRank(), "read by aten.gather")


TAKEN = "%v, %i = aten.topk.default(%x, 2) : (f32[3, 4]) -> (f32[3, 2], i64[3, 2])"
ZEROS = '%z = stepwell.weight <"z#zeros"> "constant" : f32[3, {}]'
TABLE = '%w = stepwell.weight <"w"> "parameter" : f32[{}]'
FLAT = "%p = aten.view.default(%i, [6]) : (i64[3, 2]) -> i64[6]"
GATHERED = "the chosen indices are read by aten.gather"
LOOKED_UP = "the chosen indices are read by aten.index"
ADDED = "the chosen indices are read by aten.scatter_add"
NEAR: dict[str, tuple[tuple[str, ...], str]] = {
    "of no rows": (
        ("%x: f32[0, 4]", "%y, %i = aten.topk.default(%x, 2) : (f32[0, 4]) -> (f32[0, 2], i64[0, 2])"),
        "a dimension is 0",
    ),
    "of a size that nobody knows": (
        ("%x: f32[?, 4]", "%y, %i = aten.topk.default(%x, 2) : (f32[?, 4]) -> (f32[?, 2], i64[?, 2])"),
        "a dimension is not known",
    ),
    "of rows of any length": (
        ("%x: f32[3, s0]", "%y, %i = aten.topk.default(%x, 2) : (f32[3, s0]) -> (f32[3, 2], i64[3, 2])"),
        "how many it chooses from",
    ),
    "places of any width": (
        ("%x: f32[3, 4], %z: f32[3, 4, s0]", TAKEN, "%j = aten.view.default(%i, [3, 2, 1]) : (i64[3, 2]) -> i64[3, 2, 1]", "%n = aten.sym_size.int(%z, 2) : (f32[3, 4, s0]) -> !stepwell.int<\"s0\">", "%k = aten.expand.default(%j, [-1, -1, %n]) : (i64[3, 2, 1], !stepwell.int<\"s0\">) -> i64[3, 2, s0]", "%y = aten.gather.default(%z, 1, %k) : (f32[3, 4, s0], i64[3, 2, s0]) -> f32[3, 2, s0]"),
        GATHERED,
    ),
    "of one number": (("%x: f32[]", "%y, %i = aten.topk.default(%x, 1) : (f32[]) -> (f32[], i64[])"), "there is no dimension"),
    "none": (("%x: f32[4]", "%y, %i = aten.topk.default(%x, 0) : (f32[4]) -> (f32[0], i64[0])"), "it takes nothing"),
    "as many as are known at run time": (
        (
            "%x: f32[4], %w: f32[2]",
            '%n = aten.sym_size.int(%w, 0) : (f32[2]) -> !stepwell.int<"2">',
            '%y, %i = aten.topk.default(%x, %n) : (f32[4], !stepwell.int<"2">) -> (f32[2], i64[2])',
        ),
        "known at run time",
    ),
    "many of a long row": (
        ("%x: f32[200]", "%y, %i = aten.topk.default(%x, 40) : (f32[200]) -> (f32[40], i64[40])"),
        "to take 40 of 200",
    ),
    "places that are a result": (("%x: f32[4]", "%v, %y = aten.topk.default(%x, 2) : (f32[4]) -> (f32[2], i64[2])"), "read by func.return"),
    "halves at the places": (
        ("%x: f32[3, 4], %z: f16[3, 4]", TAKEN, "%y = aten.gather.default(%z, 1, %i) : (f16[3, 4], i64[3, 2]) -> f16[3, 2]"),
        GATHERED,
    ),
    "any number of rows at the places": (
        ("%x: f32[3, 4], %z: f32[s0, 4]", TAKEN, "%y = aten.gather.default(%z, 1, %i) : (f32[s0, 4], i64[3, 2]) -> f32[3, 2]"),
        GATHERED,
    ),
    "places in a longer row": (
        ("%x: f32[3, 4], %z: f32[3, 5]", TAKEN, "%y = aten.gather.default(%z, 1, %i) : (f32[3, 5], i64[3, 2]) -> f32[3, 2]"),
        GATHERED,
    ),
    "places along the rows": (
        ("%x: f32[3, 4], %z: f32[4, 2]", TAKEN, "%y = aten.gather.default(%z, 0, %i) : (f32[4, 2], i64[3, 2]) -> f32[3, 2]"),
        GATHERED,
    ),
    "places that differ in width": (
        (
            "%x: f32[3, 4], %z: f32[3, 4, 2]",
            TAKEN,
            "%e = aten.view.default(%i, [3, 1, 2]) : (i64[3, 2]) -> i64[3, 1, 2]",
            "%f = aten.expand.default(%e, [3, 2, 2]) : (i64[3, 1, 2]) -> i64[3, 2, 2]",
            "%y = aten.gather.default(%z, 1, %f) : (f32[3, 4, 2], i64[3, 2, 2]) -> f32[3, 2, 2]",
        ),
        GATHERED,
    ),
    "rows added to more than is chosen from": (
        ("%x: f32[3, 4], %r: f32[3, 2]", TAKEN, ZEROS.format(6), "%y = aten.scatter_add.default(%z, 1, %i, %r) : (f32[3, 6], i64[3, 2], f32[3, 2]) -> f32[3, 6]"),
        ADDED,
    ),
    "rows longer than what is taken": (
        ("%x: f32[3, 4], %r: f32[3, 5]", TAKEN, ZEROS.format(4), "%y = aten.scatter_add.default(%z, 1, %i, %r) : (f32[3, 4], i64[3, 2], f32[3, 5]) -> f32[3, 4]"),
        ADDED,
    ),
    "a table's rows in two axes": (
        ("%x: f32[3, 4]", TAKEN, TABLE.format("4, 5"), "%y = aten.index.Tensor(%w, [%i]) : (f32[4, 5], i64[3, 2]) -> f32[3, 2, 5]"),
        LOOKED_UP,
    ),
    "a longer table": (
        ("%x: f32[3, 4]", TAKEN, TABLE.format("7, 5"), FLAT, "%y = aten.index.Tensor(%w, [%p]) : (f32[7, 5], i64[6]) -> f32[6, 5]"),
        LOOKED_UP,
    ),
    "a table of matrices": (
        ("%x: f32[3, 4]", TAKEN, TABLE.format("4, 5, 6"), FLAT, "%y = aten.index.Tensor(%w, [%p]) : (f32[4, 5, 6], i64[6]) -> f32[6, 5, 6]"),
        LOOKED_UP,
    ),
    "places in rows of another length": (
        ("%x: f32[3, 4], %z: f32[2, 4]", TAKEN, "%p = aten.view.default(%i, [2, 3]) : (i64[3, 2]) -> i64[2, 3]", "%y = aten.gather.default(%z, 1, %p) : (f32[2, 4], i64[2, 3]) -> f32[2, 3]"),
        GATHERED,
    ),
    "a table of halves": (
        ("%x: f32[3, 4]", TAKEN, TABLE.format("4, 5").replace("f32", "f16"), FLAT, "%y = aten.index.Tensor(%w, [%p]) : (f16[4, 5], i64[6]) -> f16[6, 5]"),
        LOOKED_UP,
    ),
    "a table's columns": (
        ("%x: f32[3, 4]", TAKEN, TABLE.format("5, 4"), FLAT, "%y = aten.index.Tensor(%w, [none, %p]) : (f32[5, 4], i64[6]) -> f32[5, 6]"),
        LOOKED_UP,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR)
def test_what_arithmetic_does_not_choose_stays(left: Any, written: Any, name: str):
    lines, reason = NEAR[name]
    left(written(*lines), ChooseByRank(), reason)


def test_numbers_that_are_never_nan_lose_none(asked: Any, written: Any):
    truths = "%x = aten._to_copy.default(%t, dtype=f32) : (i1[3, 4]) -> f32[3, 4]"
    text = written("%t: i1[3, 4]", truths, TAKEN.replace("%v", "%y"))
    assert asked(text, ChooseByRank(), "xnnpack", numerics="strict") == (1, [])
