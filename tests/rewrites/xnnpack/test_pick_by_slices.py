"""PickBySlices: beyond its documented example, and what it leaves alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from eager import EXACT, assert_as_eager, assert_whole, lower
from rewrite_cases import cases
from rewrite_runs import program_of

from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.slices.picking import Planner
from stepwell.translate.rewrites.xnnpack.expressions.pick_by_slices import pick_by_slices

CALLS = {
    "flip of many": "flip.default(%x: f32[2, 96, 3], [1, -1])",
    "overlapping windows": "unfold.default(%x: f32[2, 30, 3], 1, 6, 4)",
    "windows of each element": "unfold.default(%x: f32[2, 30], -1, 1, 1)",
    "nearest, no whole factor": "upsample_nearest2d.default(%x: f32[1, 2, 7, 9], [10, 4])",
    "nearest by a stated scale": "upsample_nearest2d.vec(%x: f32[1, 2, 5, 4], none, [1.5, 2.5])",
}


@pytest.mark.parametrize("name", CALLS)
def test_elements_are_picked_as_torch_does(name: str, apply: Any):
    done = apply(f"%y = aten.{CALLS[name]}", step(pick_by_slices))
    assert done.count == 1
    kinds = {"slice.Tensor", "cat.default", "view.default", "permute.default"}
    assert {name.removeprefix("aten.") for name in done.ops()} <= kinds
    assert len(done.ops()) < 64


test_pick_by_slices = cases(step(pick_by_slices))("""
one axis -> aten.slice.Tensor, aten.slice.Tensor, aten.cat.default
    %y = aten.index.Tensor(%x: f32[3, 6, 5], [none, %i: constant i64[4]])
one axis by a matrix -> aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.cat.default, aten.view.default
    %y = aten.index.Tensor(%x: f32[3, 6, 5], [none, %i: constant i64[3, 2]])
a mesh of two axes -> aten.slice.Tensor, aten.slice.Tensor, aten.cat.default, aten.slice.Tensor, aten.cat.default
    %y = aten.index.Tensor(%x: f32[3, 6, 5], [none, %i: constant i64[3, 1], %j: constant i64[4]])
pairs of places -> aten.view.default, aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.cat.default
    %y = aten.index.Tensor(%x: f32[3, 6, 5], [none, %i: constant i64[4], %j: constant i64[4]])
the second axis of the mesh first -> aten.view.default, aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.cat.default, aten.view.default
    %y = aten.index.Tensor(%x: f32[3, 6, 5], [none, %i: constant i64[3], %j: constant i64[4, 1]])
axes apart stay a gather -> refused: not neighbors
    %y = aten.index.Tensor(%x: f32[3, 6, 5], [%i: constant i64[4], none, %j: constant i64[4]])
places without order stay a gather -> refused: so irregular
    %y = aten.index_select.default(%x: f32[400], 0, %i: constant i64[400])
integers stay a gather -> refused: not int64
    %y = aten.flip.default(%x: i64[4], [0])
a window of a number -> refused: only at run time
    %y = aten.unfold.default(%x: f32[], 0, 1, 1)
what is left has its reason -> refused: not exact floats
    %y = aten.upsample_nearest2d.default(%x: f32[1, 1, 1, 16777216], [1, 2])
an axis too many -> refused: rank 6
    %y = aten.flip.default(%x: f32[1, 1, 1, 1, 2, 3], [5])
""")


FLIP = list(range(192))[::-1]
ORDERED = {
    "a flip": (FLIP, 192, 24),
    "a flip of a prime number": (list(range(97))[::-1], 97, 24),
    "a resize by 10/7": ([i * 7 // 10 for i in range(40)], 28, 8),
    "repeats": ([i // 3 for i in range(300)], 100, 6),
    "tiles": ([*range(50)] * 4, 50, 4),
    "windows": ([i * 8 + j for i in range(63) for j in range(16)], 512, 8),
    "every third": (list(range(1, 90, 3)), 90, 3),
}


@pytest.mark.parametrize("name", ORDERED)
def test_places_with_order_take_few_slices(name: str):
    indices, size, most = ORDERED[name]
    assert Planner().plan(tuple(indices), size).cost <= most


def picked(places: torch.Tensor, dim: int = -1) -> tuple[int, list[str], bool]:
    """How often the rewrite applies, why it does not, and whether eager's numbers stay."""
    shape = list(places.shape)
    program = program_of(
        f"%y = aten.gather.default(%x: f32[2, 4, 9], {dim}, %i: constant i64{shape})"
    )
    program.weights.get("i").copy_(places)
    x, history = torch.randn(2, 4, 9), History()
    count = run_rewrites(program, [step(pick_by_slices)], history)
    reasons = [record.reason for record in history.refusals.values()]
    return count, reasons, torch.equal(program.run(x)[0], x.gather(dim, places))


def test_relative_positions_are_gathered_by_slices():
    away = torch.arange(4)[:, None] - torch.arange(4)[None]
    assert picked((away + 4).expand(2, 4, 4)) == (1, [], True)


@pytest.mark.parametrize(
    ("places", "dim", "reason"),
    [
        (torch.zeros(2, 4, 4, dtype=torch.long), 1, "another axis"),
        (torch.zeros(2, 3, 4, dtype=torch.long), -1, "leave out rows"),
        (torch.arange(2)[:, None, None].expand(2, 4, 4), -1, "not the same for all"),
    ],
)
def test_a_gather_of_other_places_stays(places: torch.Tensor, dim: int, reason: str):
    count, reasons, same = picked(places, dim)
    assert (count, same) == (0, True) and reason in reasons[0]


Picks = Callable[[torch.Tensor], torch.Tensor]
OPEN: dict[str, Picks] = {
    "flip": lambda x: x.flip(1, -1),
    "windows": lambda x: x.unfold(2, 3, 2),
    "patches": lambda x: F.unfold(x, 3, padding=1),
    "nearest": lambda x: F.interpolate(x, size=(10, 4), mode="nearest"),
    "a mesh": lambda x: x[:, :, [[4], [0]], [1, 3, -1]],
    "rows": lambda x: x.index_select(2, torch.tensor([3, 0, 1])),
}


def behind(name: str) -> Picks:
    """What picks elements, behind a sum, so that it stands in a delegate."""
    return lambda x: OPEN[name](x + x)


@pytest.mark.parametrize("name", OPEN)
def test_axes_that_are_not_picked_from_may_be_open(name: str):
    batch = {0: torch.export.Dim("batch", max=8)}
    lowered = lower(behind(name), torch.randn(2, 3, 5, 6), dynamic=batch)
    assert_whole(lowered)
    for size in (1, 3):
        assert_as_eager(lowered, behind(name), torch.randn(size, 3, 5, 6), **EXACT)


@pytest.mark.parametrize(
    ("axes", "reason"), [({1: 8}, "symbolic size"), ({0: 8, 2: 8}, "more than one size")]
)
def test_an_open_axis_is_not_picked_from(axes: dict[int, int], reason: str):
    sizes = {axis: torch.export.Dim(f"d{axis}", min=2, max=most) for axis, most in axes.items()}
    x = torch.randn(2, 4, 3, 3)
    lowered = lower(behind("flip"), x, dynamic=sizes)
    assert any(reason in refusal.reason for refusal in lowered.report.refusals)
    assert_as_eager(lowered, behind("flip"), x, **EXACT)
