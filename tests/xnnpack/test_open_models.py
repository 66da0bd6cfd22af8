"""Models whose batch, length or image is open: one delegate, right at every size."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import stepwell

BATCH, HEIGHT, WIDTH = Dim("b", min=1, max=8), Dim("h", min=6, max=24), Dim("w", min=6, max=24)
IMAGE, ALL = {2: HEIGHT, 3: WIDTH}, {0: BATCH, 2: HEIGHT, 3: WIDTH}
LENGTH = Dim("l", min=4, max=24)
HINTED = {2: Dim.DYNAMIC(min=6, max=24), 3: Dim.DYNAMIC(min=6, max=24)}
PICTURE, ROWS = (2, 3, 12, 10), (3, 10, 16)


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def over_channels(x: torch.Tensor) -> torch.Tensor:
    """A layer norm as image models write it."""
    centered = x - x.mean(1, keepdim=True)
    return centered / (centered.pow(2).mean(1, keepdim=True) + 1e-5).sqrt()


def after_convolution(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), norm, nn.SiLU())


def resized(factor: float) -> nn.Module:
    return Of(lambda x: F.interpolate(x.mT, scale_factor=factor, mode="nearest"))


WHOLE = {
    "lines repeated": (resized(3.0), ROWS, {1: LENGTH}),
    "lines by a fraction": (resized(1.5), ROWS, {0: BATCH}),
    "group norm": (after_convolution(nn.GroupNorm(4, 8)), PICTURE, ALL),
    "one group": (after_convolution(nn.GroupNorm(1, 8)), PICTURE, IMAGE),
    "instance norm": (after_convolution(nn.InstanceNorm2d(8, affine=True)), PICTURE, ALL),
    "layer norm over channels": (Of(over_channels), PICTURE, ALL),
    "planes": (Of(lambda x: x.mean((2, 3))), PICTURE, ALL),
    "inner axes": (Of(lambda x: x.mean((1, 2), keepdim=True)), PICTURE, {0: BATCH, 3: WIDTH}),
    "sum over channels": (Of(lambda x: x.sum(1, keepdim=True)), PICTURE, ALL),
    "greatest of channels": (Of(lambda x: x.amax(-1)), ROWS, {0: BATCH, 1: LENGTH}),
    "log softmax": (Of(lambda x: x.log_softmax(-1)), ROWS, {1: LENGTH}),
    "windows over the edge": (Of(lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True)), PICTURE, HINTED),
    "padded windows over it": (Of(lambda x: F.max_pool2d(x, 3, 2, 1, 1, True)), PICTURE, HINTED),
    "averages with padding": (Of(lambda x: F.avg_pool2d(x, 3, 2, 1)), PICTURE, ALL),
    "rows of an open axis": (Of(lambda x: x[:, :, 1:4] * x[:, :, :1]), PICTURE, ALL),
    "tokens of any number": (Of(lambda x: x.mean(1)), ROWS, {1: LENGTH}),
    "tokens of any batch": (Of(lambda x: x.sum(1)), ROWS, {0: BATCH}),
}


def exported(
    model: nn.Module, shape: tuple[int, ...], dynamic: Any
) -> torch.export.ExportedProgram:
    x = torch.randn(shape)
    return torch.export.export(model.eval(), (x,), dynamic_shapes=(dynamic,), strict=False)


def assert_right(lowered: Any, model: nn.Module, shape: tuple[int, ...], dynamic: Any) -> None:
    for size in (None, 6, 7, 24):
        sizes = list(shape)
        for axis, dim in dynamic.items() if size else ():
            sizes[axis] = min(size, dim.max)
        x = torch.randn(sizes)
        torch.testing.assert_close(lowered.run(x)[0], model(x), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", WHOLE)
def test_what_reduces_static_axes_or_whole_planes_is_one_delegate(name: str) -> None:
    torch.manual_seed(0)
    model, shape, dynamic = WHOLE[name]
    lowered = stepwell.lower(exported(model, shape, dynamic), "xnnpack")
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    assert_right(lowered, model, shape, dynamic)


@pytest.mark.parametrize("correction", (0, 1))
def test_a_deviation_along_an_open_axis_asks_the_input_for_its_size(correction: int) -> None:
    model = Of(lambda x: torch.cat([x.std(1, correction=correction), x.exp().var(1)], -1))
    lowered = stepwell.lower(exported(model, ROWS, {1: Dim("l", min=2, max=24)}), "xnnpack")
    assert lowered.report.delegates == 1
    assert set(lowered.report.outside) == {"aten.sym_size.int", "aten.full.default"}
    for size in (2, 3, 24):
        x = torch.randn(3, size, 16)
        torch.testing.assert_close(lowered.run(x)[0], model(x), rtol=1e-4, atol=1e-5)


class Tail(nn.Module):
    """Some rows of what layers give of all."""

    def __init__(self, *cuts: slice) -> None:
        super().__init__()
        self.first, self.last, self.cuts = nn.Linear(16, 16), nn.Linear(16, 4), cuts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.first(x).exp()
        parts = [rows[:, cut] for cut in self.cuts]
        return self.last(parts[0] if len(parts) == 1 else parts[0] - parts[1])


@pytest.mark.parametrize(
    ("cuts", "made"),
    [
        ((slice(-1, None),), (1, 1)),
        ((slice(-3, None),), (1, 1)),
        ((slice(1, -1),), (1, 1)),
        ((slice(-3, None), slice(-2, -1)), (1, 1)),  # Of the last three the second.
        ((slice(1, None), slice(None, -1)), (2, 2)),  # All is read: nothing is gained ahead.
    ],
)
def test_the_end_of_an_open_axis_is_cut_off_the_input(cuts: Any, made: tuple[int, int]) -> None:
    model = Tail(*cuts)
    lowered = stepwell.lower(exported(model, ROWS, {1: LENGTH}), "xnnpack")
    assert (lowered.report.delegates, lowered.report.outside["aten.slice.Tensor"]) == made
    assert_right(lowered, model, ROWS, {1: LENGTH})


def test_a_length_that_divides_is_not_repeated() -> None:
    model = Of(lambda x: F.normalize(x.exp(), dim=1).exp())
    lowered = stepwell.lower(exported(model, ROWS, {1: LENGTH}), "xnnpack")
    assert lowered.report.delegates == 1
    assert_right(lowered, model, ROWS, {1: LENGTH})


PROVED = {
    "two pieces": lambda x: x.chunk(2, 1)[1],
    "windows past the end": lambda x: F.avg_pool1d(x.transpose(1, 2), 3, ceil_mode=True),
    "median": lambda x: x.median(1)[0],
}


@pytest.mark.parametrize("name", PROVED)
def test_what_pytorch_guards_is_proved_from_the_range_of_the_size(name: str) -> None:
    model, dynamic = Of(PROVED[name]), {1: Dim.DYNAMIC(min=3, max=24)}
    lowered = stepwell.lower(exported(model, ROWS, dynamic), "xnnpack")
    for size in (3, 4, 5, 10, 23, 24):
        x = torch.randn(3, size, 16)
        torch.testing.assert_close(lowered.run(x)[0], model(x))


ALONG = {
    "greatest so far": lambda x: torch.cummax(x, 1),
    "least so far": lambda x: torch.cummin((x * 4).to(torch.int32), 1),
    "running sums of exponentials": lambda x: (x.logcumsumexp(-2),),
    "greatest of four parts": lambda x: F.adaptive_max_pool1d(x.mT, 4, return_indices=True),
    "greatest of parts both ways": lambda x: F.adaptive_max_pool2d(x, (3, 5), return_indices=True),
    "circular padding": lambda x: (F.pad(x.transpose(1, 2), (2, 1), mode="circular"),),
}


@pytest.mark.parametrize("name", ALONG)
def test_what_goes_along_an_open_axis_is_right_at_every_size(name: str) -> None:
    model, dynamic = Of(ALONG[name]), {1: Dim.DYNAMIC(min=2, max=24)}
    lowered = stepwell.lower(exported(model, ROWS, dynamic), "xnnpack")
    for size in (2, 3, 8, 9, 16, 17, 24):
        x = torch.randn(3, size, 16)
        if name != "least so far":  # Which integer an infinity becomes is the CPU's.
            x[0, -2:, 3], x[1, 1, 4], x[2, 0, 5] = -torch.inf, torch.inf, torch.nan
        for found, wanted in zip(lowered.run(x), model(x), strict=True):
            torch.testing.assert_close(found, wanted, equal_nan=True)


def test_a_guard_that_a_size_of_the_range_breaks_is_refused() -> None:
    model = Of(lambda x: x.chunk(3, 1)[0])  # Four rows are two pieces, not three.
    with pytest.raises(stepwell.StepwellError, match="holds only where"):
        stepwell.lower(exported(model, ROWS, {1: Dim.DYNAMIC(min=3, max=24)}), "xnnpack")


def test_a_factor_whose_share_is_rounded_down_is_not_repetition() -> None:
    with pytest.raises(stepwell.StepwellError, match="upsample_nearest1d"):
        stepwell.lower(exported(resized(41.0), ROWS, {1: LENGTH}), "xnnpack")


def test_rows_that_are_a_grid_by_division_keep_their_order() -> None:
    model = Of(lambda x: x.view(3, 2, x.shape[1] // 2, 16).permute(0, 3, 1, 2) * 2)
    lowered = stepwell.lower(exported(model, ROWS, {1: Dim.AUTO(min=4, max=24)}), "xnnpack")
    for size in (4, 10, 24):
        x = torch.randn(3, size, 16)
        torch.testing.assert_close(lowered.run(x)[0], model(x))


def test_a_norm_of_turned_rows_runs_at_its_level_too() -> None:
    model = Of(lambda x: F.instance_norm(x.mT).mT)  # The runtime's kernel stays, of two open axes.
    lowered = stepwell.lower(exported(model, ROWS, {0: BATCH, 1: LENGTH}), "xnnpack")
    x = torch.randn(2, 7, 16)
    for (found,) in (lowered.run(x), lowered.program.run(x)):
        torch.testing.assert_close(found, model(x), rtol=1e-4, atol=2e-5)
