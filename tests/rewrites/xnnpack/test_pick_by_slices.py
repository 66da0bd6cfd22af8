"""PickBySlices: beyond its documented example, and what it leaves alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stepwell
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.ir.syntax.text import parse_module
from stepwell.ir.weights import WeightStore
from stepwell.translate.rewrites.slices.picking import Planner
from stepwell.translate.rewrites.xnnpack.expressions.pick_by_slices import PickBySlices

CALLS = {
    "flip of many": ("2x96x3", "aten.flip.default(%x, [1, -1])", "2x96x3"),
    "overlapping windows": ("2x30x3", "aten.unfold.default(%x, 1, 6, 4)", "2x7x3x6"),
    "windows of each element": ("2x30", "aten.unfold.default(%x, -1, 1, 1)", "2x30x1"),
    "nearest, no whole factor": (
        "1x2x7x9",
        "aten.upsample_nearest2d.default(%x, [10, 4])",
        "1x2x10x4",
    ),
    "nearest by a stated scale": (
        "1x2x5x4",
        "aten.upsample_nearest2d.vec(%x, none, [1.5, 2.5])",
        "1x2x7x10",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_elements_are_picked_as_torch_does(name: str, apply: Any, method: Any):
    given, call, made = CALLS[name]
    types = f": (tensor<{given}xf32>) -> tensor<{made}xf32>"
    text = method(f"%x: tensor<{given}xf32>", f"%y = {call} {types}", gives=f"tensor<{made}xf32>")
    done = apply(text, PickBySlices())
    assert done.count == 1
    kinds = {"slice.Tensor", "cat.default", "view.default", "permute.default"}
    assert {name.removeprefix("aten.") for name in done.ops()} <= kinds
    assert len(done.ops()) < 64


def indexed(indices: str, held: tuple[str, ...], made: str, method: Any) -> str:
    """An `index` of `[3, 6, 5]` by constants."""
    weights = [
        f'%{"ij"[at]} = stepwell.weight <"{"ij"[at]}"> "constant" : tensor<{type_}xi64>'
        for at, type_ in enumerate(held)
    ]
    types = ", ".join(f"tensor<{type_}xi64>" for type_ in held)
    call = f"%y = aten.index.Tensor(%x, [{indices}]) : (tensor<3x6x5xf32>, {types}) -> "
    return method(
        "%x: tensor<3x6x5xf32>", *weights, f"{call}tensor<{made}xf32>", gives=f"tensor<{made}xf32>"
    )


GATHERS = {
    "one axis": ("none, %i", ("4",), "3x4x5"),
    "one axis by a matrix": ("none, %i", ("3x2",), "3x3x2x5"),
    "a mesh of two axes": ("none, %i, %j", ("3x1", "4"), "3x3x4"),
    "pairs of places": ("none, %i, %j", ("4", "4"), "3x4"),
    "the second axis of the mesh first": ("none, %i, %j", ("3", "4x1"), "3x4x3"),
}


@pytest.mark.parametrize("name", GATHERS)
def test_a_gather_by_constants_is_slices(name: str, apply: Any, method: Any):
    done = apply(indexed(*GATHERS[name], method), PickBySlices())
    assert done.count == 1
    assert "aten.index.Tensor" not in done.ops()


def test_axes_apart_stay_a_gather(refused: Any, method: Any):
    refused(indexed("%i, none, %j", ("4", "4"), "4x6", method), PickBySlices(), "not neighbors")


def test_places_without_order_stay_a_gather(refused: Any, method: Any):
    text = method(
        "%x: tensor<400xf32>",
        '%i = stepwell.weight <"i"> "constant" : tensor<400xi64>',
        "%y = aten.index_select.default(%x, 0, %i) : (tensor<400xf32>, tensor<400xi64>) -> tensor<400xf32>",
        gives="tensor<400xf32>",
    )
    refused(text, PickBySlices(), "so irregular")


def test_integers_stay_a_gather(refused: Any, method: Any):
    text = method(
        "%x: tensor<4xi64>",
        "%y = aten.flip.default(%x, [0]) : (tensor<4xi64>) -> tensor<4xi64>",
        gives="tensor<4xi64>",
    )
    refused(text, PickBySlices(), "not int64")


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


HEADS = "tensor<2x4x9xf32>"


def picked(places: torch.Tensor, dim: int = -1) -> tuple[int, list[str], bool]:
    """How often the rewrite applies, why it does not, and whether eager's numbers stay."""
    rows = f"tensor<{'x'.join(map(str, places.shape))}x"
    text = (
        f"func.func @forward(%x: {HEADS}) -> {rows}f32> {{\n"
        f'  %i = stepwell.weight <"places"> "constant" : {rows}i64>\n'
        f"  %y = aten.gather.default(%x, {dim}, %i) : ({HEADS}, {rows}i64>) -> {rows}f32>\n"
        f"  func.return %y : {rows}f32>\n}}"
    )
    program = Program(parse_module(text), WeightStore())
    program.weights.add("places", places)
    x, history = torch.randn(2, 4, 9), History()
    count = run_rewrites(program, [PickBySlices()], history)
    reasons = [record.reason for record in history.refusals.values()]
    return count, reasons, torch.equal(program.run(x)[0], x.gather(dim, places))


def test_relative_positions_are_gathered_by_slices():
    away = torch.arange(4)[:, None] - torch.arange(4)[None]
    assert picked((away + 4).expand(2, 4, 4)) == (1, [], True)


@pytest.mark.parametrize(
    ("places", "dim", "reason"),
    [
        (torch.zeros(2, 4, 4, dtype=torch.long), 1, "another axis"),
        (torch.zeros(2, 3, 4, dtype=torch.long), -1, "fewer indices"),
        (torch.arange(2)[:, None, None].expand(2, 4, 4), -1, "not the same for all"),
    ],
)
def test_a_gather_of_other_places_stays(places: torch.Tensor, dim: int, reason: str):
    count, reasons, same = picked(places, dim)
    assert (count, same) == (0, True) and reason in reasons[0]


Picks = Callable[[torch.Tensor], torch.Tensor]


class Behind(torch.nn.Module):
    """What picks elements, behind a sum, so that it stands in a delegate."""

    def __init__(self, picks: Picks) -> None:
        super().__init__()
        self.picks = picks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.picks(x + x)


OPEN: dict[str, Picks] = {
    "flip": lambda x: x.flip(1, -1),
    "windows": lambda x: x.unfold(2, 3, 2),
    "patches": lambda x: F.unfold(x, 3, padding=1),
    "nearest": lambda x: F.interpolate(x, size=(10, 4), mode="nearest"),
    "a mesh": lambda x: x[:, :, [[4], [0]], [1, 3, -1]],
    "rows": lambda x: x.index_select(2, torch.tensor([3, 0, 1])),
}


@pytest.mark.parametrize("name", OPEN)
def test_axes_that_are_not_picked_from_may_be_open(name: str):
    module = Behind(OPEN[name])
    batch = torch.export.Dim("batch", max=8)
    exported = torch.export.export(module, (torch.randn(2, 3, 5, 6),), dynamic_shapes=({0: batch},))
    lowered = stepwell.lower(exported, "xnnpack")
    assert (lowered.report.delegates, lowered.report.outside.total()) == (1, 0)
    for size in (1, 3):
        x = torch.randn(size, 3, 5, 6)
        assert torch.equal(lowered.run(x)[0], module(x))


def test_an_open_axis_is_not_picked_from():
    length = torch.export.Dim("length", min=2, max=8)
    module, x = Behind(OPEN["flip"]), torch.randn(2, 4, 3)
    exported = torch.export.export(module, (x,), dynamic_shapes=({1: length},))
    lowered = stepwell.lower(exported, "xnnpack")
    assert any("symbolic size" in refusal.reason for refusal in lowered.report.refusals)
    assert torch.equal(lowered.run(x)[0], module(x))


def test_of_two_open_axes_nothing_is_picked():
    batch, length = torch.export.Dim("batch", max=8), torch.export.Dim("length", min=2, max=8)
    module, x = Behind(OPEN["flip"]), torch.randn(2, 4, 3, 3)
    shapes = ({0: batch, 2: length},)
    exported = torch.export.export(module, (x,), dynamic_shapes=shapes)
    lowered = stepwell.lower(exported, "xnnpack")
    assert any("more than one size" in refusal.reason for refusal in lowered.report.refusals)
    assert torch.equal(lowered.run(x)[0], module(x))


LEFT = {
    "a window of a number": ("", "aten.unfold.default(%x, 0, 1, 1)", "1x", "only at run time"),
    "an image of 2**24 columns": (
        "1x1x1x16777216x",
        "aten.upsample_nearest2d.default(%x, [1, 2])",
        "1x1x1x2x",
        "not exact floats",
    ),
    "an axis too many": ("1x1x1x1x2x3x", "aten.flip.default(%x, [5])", "1x1x1x1x2x3x", "rank 6"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_has_its_reason(name: str, refused: Any, method: Any):
    given, call, made, reason = LEFT[name]
    types = f": (tensor<{given}f32>) -> tensor<{made}f32>"
    text = method(f"%x: tensor<{given}f32>", f"%y = {call} {types}", gives=f"tensor<{made}f32>")
    refused(text, PickBySlices(), reason)
