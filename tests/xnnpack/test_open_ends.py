"""The end of an open axis: borders that reflect or repeat it, its last rows, as long as another."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

import stepwell

COMPUTED: dict[str, Callable[[Tensor], Tensor]] = {
    "reflected": lambda x: F.pad(x.sigmoid(), (3, 2), "reflect").tanh(),
    "reflected in front alone": lambda x: F.pad(x.sigmoid(), (2, 0), "reflect").tanh(),
    "reflected behind alone": lambda x: F.pad(x.sigmoid(), (0, 4), "reflect").tanh(),
    "repeated": lambda x: F.pad(x.sigmoid(), (2, 3), "replicate").tanh(),
    "last rows": lambda x: x.sigmoid()[..., -3:].tanh(),
    "last rows of another axis": lambda x: x.sigmoid().transpose(1, 2)[:, -2:].tanh(),
    "mean beside each": lambda x: torch.cat(
        [x, x.mean(2, keepdim=True).repeat(1, 1, x.shape[2])], 1
    ).tanh(),
}


class Computed(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def lowered_of(
    function: Callable[[Tensor], Tensor], shape: tuple[int, ...], *axes: int, **options: str
) -> stepwell.Lowered:
    open_ = {axis: Dim(f"n{axis}", min=10, max=24) for axis in axes}
    program = torch.export.export(
        Computed(function), (torch.randn(shape),), dynamic_shapes={"x": open_}
    )
    return stepwell.lower(program, "xnnpack", **options)


@pytest.mark.parametrize("function", COMPUTED.values(), ids=COMPUTED)
def test_the_end_of_an_open_line_is_in_the_delegate(function: Callable[[Tensor], Tensor]) -> None:
    lowered = lowered_of(function, (2, 4, 12), 2, numerics="finite")
    assert lowered.report.stages == 1
    assert not {"aten.expand.default", "aten.reflection_pad1d.default"} & {*lowered.report.outside}
    for size in (12, 10, 24):
        x = torch.randn(2, 4, size)
        torch.testing.assert_close(lowered.run(x)[0], function(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_images_of_two_open_sizes_have_borders_inside(mode: str) -> None:
    def function(x: Tensor) -> Tensor:
        return F.pad(x.sigmoid(), (2, 1, 3, 2), mode).tanh()

    lowered = lowered_of(function, (1, 3, 12, 13), 2, 3, numerics="finite")
    assert (lowered.report.stages, dict(lowered.report.outside)) == (1, {})
    for height, width in ((12, 10), (10, 24), (17, 11)):
        x = torch.randn(1, 3, height, width)
        torch.testing.assert_close(lowered.run(x)[0], function(x), rtol=1e-5, atol=1e-6)


def test_an_infinity_is_no_neighbors_by_default() -> None:
    def function(x: Tensor) -> Tensor:
        return F.pad(x * 2, (2, 2), "reflect") + 1

    lowered = lowered_of(function, (1, 2, 12), 2)
    x = torch.randn(1, 2, 12)
    x[0, 0, 4] = torch.inf
    torch.testing.assert_close(lowered.run(x)[0], function(x))
    assert "aten.reflection_pad1d.default" in lowered.report.outside


def test_what_is_repeated_along_an_axis_is_not_of_what_stands_there() -> None:
    lowered = lowered_of(COMPUTED["mean beside each"], (2, 4, 12), 2)
    assert lowered.report.stages == 1
    x = torch.randn(2, 4, 11)
    x[0, 1, 3], x[1, 0, 0] = torch.inf, torch.nan
    torch.testing.assert_close(lowered.run(x)[0], COMPUTED["mean beside each"](x), equal_nan=True)


def test_many_rows_are_left_to_the_kernel() -> None:
    lowered = lowered_of(
        lambda x: F.pad(x.sigmoid(), (9, 9), "reflect"), (1, 2, 12), 2, numerics="finite"
    )
    assert any("many products" in str(refusal) for refusal in lowered.report.refusals)


def test_what_is_taken_apart_has_sizes_that_are_one_for_all_calls() -> None:
    layer = nn.Linear(9, 4)

    def function(x: Tensor) -> Tensor:
        rows = F.unfold(x, 3, stride=8).transpose(1, 2)
        torch._check(rows.shape[1] == 16)
        return layer(rows)

    model, open_ = Computed(function), {2: Dim("h", min=27, max=34)}
    program = torch.export.export(model, (torch.randn(1, 1, 28, 28),), dynamic_shapes={"x": open_})
    lowered = stepwell.lower(program, "xnnpack")
    for height in (27, 34):
        x = torch.randn(1, 1, height, 28)
        with torch.no_grad():
            torch.testing.assert_close(lowered.run(x)[0], model(x), rtol=1e-4, atol=1e-5)


def test_a_size_that_is_one_for_all_calls_is_a_number() -> None:
    """Rows of patches that any image of the range has; a table of places is added to them."""
    patches, places = nn.Conv2d(1, 8, 8, 8), torch.randn(1, 16, 8)

    def function(x: Tensor) -> Tensor:
        rows = patches(x).flatten(2).transpose(1, 2)
        torch._check(rows.shape[1] == 16)
        return (rows + places).softmax(-1)

    open_ = {2: Dim("h", min=32, max=39), 3: Dim("w", min=32, max=39)}
    model = Computed(function)
    program = torch.export.export(model, (torch.randn(1, 1, 34, 33),), dynamic_shapes={"x": open_})
    lowered = stepwell.lower(program, "xnnpack")
    assert (lowered.report.stages, dict(lowered.report.outside)) == (1, {})
    for height, width in ((34, 33), (32, 39), (39, 32)):
        x = torch.randn(1, 1, height, width)
        with torch.no_grad():
            torch.testing.assert_close(lowered.run(x)[0], model(x), rtol=1e-4, atol=1e-5)


def test_a_whole_share_of_an_open_axis_is_between_known_bounds() -> None:
    def function(x: Tensor) -> Tensor:
        rows, batch = (x * 2).flatten(0, 1), x.shape[0]
        return rows[:batch].tanh() + rows[2 * batch : 3 * batch].sigmoid()

    program = torch.export.export(
        Computed(function), (torch.randn(2, 4, 6),), dynamic_shapes={"x": {0: Dim("n", max=9)}}
    )
    lowered = stepwell.lower(program, "xnnpack")
    assert (lowered.report.stages, dict(lowered.report.outside)) == (1, {})
    for batch in (2, 5, 9):
        x = torch.randn(batch, 4, 6)
        torch.testing.assert_close(lowered.run(x)[0], function(x), rtol=1e-5, atol=1e-6)
