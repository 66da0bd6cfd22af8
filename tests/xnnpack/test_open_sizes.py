"""Programs of open batch, length, height or width: one delegate, right at every size."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from eager import (
    Function,
    Model,
    assert_as_eager,
    assert_as_eager_within,
    assert_whole,
    exported,
    lower,
)
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

import stepwell

BATCH, LENGTH = {0: Dim("b", min=1, max=8)}, {1: Dim("l", min=4, max=24)}
ANY_LENGTH = {1: Dim("l", min=1, max=1500)}
SAMPLES = {2: Dim("l", min=4, max=32)}
IMAGE = {2: Dim("h", min=6, max=24), 3: Dim("w", min=6, max=24)}
ALL, BATCH_ROWS, BATCH_LINES = BATCH | IMAGE, BATCH | LENGTH, BATCH | SAMPLES
HINTED = {2: Dim.DYNAMIC(min=6, max=24), 3: Dim.DYNAMIC(min=6, max=24)}
PICTURE, ROWS, LINES, PIXELS = (2, 3, 12, 10), (3, 10, 16), (3, 4, 9), (1, 4, 9, 8)


def over_channels(x: Tensor) -> Tensor:
    """A layer norm as image models write it."""
    centered = x - x.mean(1, keepdim=True)
    return centered / (centered.pow(2).mean(1, keepdim=True) + 1e-5).sqrt()


def after_convolution(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), norm, nn.SiLU())


def resized(factor: float) -> Model:
    return lambda x: F.interpolate(x.mT, scale_factor=factor, mode="nearest")


def attention(x: Tensor, qkv: nn.Module, out: nn.Module) -> Tensor:
    rows, width = x.shape[1], x.shape[2]
    q, k, v = qkv(x).view(1, rows, 3, 2, width // 2).permute(2, 0, 3, 1, 4).unbind(0)
    scores = torch.einsum("bhid,bhjd->bhij", q, k) * (width // 2) ** -0.5
    y = torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), v)
    return out(y.transpose(1, 2).reshape(1, rows, width))


def causal(x: Tensor, conv: nn.Module, again: nn.Module) -> Tensor:
    y = conv(x)[:, :, :-4].contiguous().relu()
    return x + again(F.pad(y, (6, 6)))[:, :, :-6]


def lines(x: Tensor, conv: nn.Module, norm: nn.Module, again: nn.Module) -> Tensor:
    return again(F.gelu(norm(conv(x).transpose(1, 2)).transpose(1, 2)))


def windows(x: Tensor, norm: nn.Module, matrix: nn.Module, out: nn.Module) -> Tensor:
    """Every second row, rows written, windows of seven axes, a matrix beside a batch of them."""
    y = norm(x)
    y = torch.cat([y[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], -1).clone()
    y[:, :2] = y[:, :2].relu()
    y = y.view(-1, 2, 2, 2, 2, 2, 8).permute(0, 1, 3, 5, 2, 4, 6).reshape(-1, 32, 8)
    return out(matrix.weight @ y)


def gated(x: Tensor, enter: nn.Module, deep: nn.Module, gate: nn.Module, leave: Any) -> Tensor:
    """Every kind of convolution and pooling, a residual, and a gate of its own mean."""
    x = F.max_pool2d(F.silu(enter(x)), 3, 1, 1)
    x = x + F.avg_pool2d(deep(F.pad(x, (1, 1, 1, 1))), 3, 1)
    return leave(x * gate(F.adaptive_avg_pool2d(x, 1)).sigmoid())


def wave(x: Tensor, *layers: Any) -> Tensor:
    """Causal convolutions of lines with a gate, as in WaveNet."""
    for layer in layers:
        one, other = layer(F.pad(x, (layer.dilation[0], 0))).chunk(2, 1)
        x = x + one.tanh() * other.sigmoid()
    return x


def unet(x: Tensor, down: nn.Module, up: nn.Module, out: nn.Module) -> Tensor:
    """Down, up and a concatenation beside it, with group norms."""
    wide = down(x)
    return out(torch.cat([wide, up(F.max_pool2d(wide, 2))], 1))


def self_attention(x: Tensor, attention: nn.Module) -> Tensor:
    return attention(x, x, x, need_weights=False)[0]


GROUPED = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
PATCHES, PLACES = nn.Conv2d(1, 8, 8, 8), torch.randn(1, 16, 8)


def sixteen(rows: Tensor) -> Tensor:
    """Rows of which any image of the range has sixteen."""
    torch._check(rows.shape[1] == 16)
    return rows


Case = tuple[Model, tuple[int, ...], dict[int, Any]]
WHOLE: dict[str, Case] = {
    "lines repeated": (resized(3.0), ROWS, LENGTH),
    "lines by a fraction": (resized(1.5), ROWS, BATCH),
    "group norm": (after_convolution(nn.GroupNorm(4, 8)), PICTURE, ALL),
    "one group": (after_convolution(nn.GroupNorm(1, 8)), PICTURE, IMAGE),
    "instance norm": (after_convolution(nn.InstanceNorm2d(8, affine=True)), PICTURE, ALL),
    "layer norm over channels": (over_channels, PICTURE, ALL),
    "planes": (lambda x: x.mean((2, 3)), PICTURE, ALL),
    "inner axes": (lambda x: x.mean((1, 2), keepdim=True), PICTURE, BATCH | {3: IMAGE[3]}),
    "sum over channels": (lambda x: x.sum(1, keepdim=True), PICTURE, ALL),
    "greatest of channels": (lambda x: x.amax(-1), ROWS, BATCH_ROWS),
    "means by a size": (lambda x: (x.sum(1) / x.shape[1]).tanh(), ROWS, LENGTH),
    "rounded": (lambda x: (x.tanh() * 7).round().exp(), ROWS, BATCH_ROWS),
    "log softmax": (lambda x: x.log_softmax(-1), ROWS, LENGTH),
    "windows over the edge": (lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), PICTURE, HINTED),
    "padded windows over it": (lambda x: F.max_pool2d(x, 3, 2, 1, 1, True), PICTURE, HINTED),
    "averages with padding": (lambda x: F.avg_pool2d(x, 3, 2, 1), PICTURE, ALL),
    "rows of an open axis": (lambda x: x[:, :, 1:4] * x[:, :, :1], PICTURE, ALL),
    "tokens of any number": (lambda x: x.mean(1), ROWS, LENGTH),
    "tokens of any batch": (lambda x: x.sum(1), ROWS, BATCH),
}
"""Compared within 1e-4 and 2e-5."""

PROGRAMS: dict[str, Case] = {
    "attention as einsum": (
        Function(attention, nn.Linear(8, 24), nn.Linear(8, 8)), (1, 5, 8), LENGTH,
    ),
    "a causal convolution that cuts the end off": (
        Function(causal, nn.Conv1d(4, 6, 3, padding=4, dilation=2), nn.Conv1d(6, 4, 7)),
        (1, 4, 9), SAMPLES,
    ),
    "a transposed convolution that is trimmed": (
        Function(lambda x, up: up(x)[..., 2:-2], nn.ConvTranspose1d(4, 3, 8, stride=4)),
        (1, 4, 9), SAMPLES,
    ),
    "an image that is halved and enlarged": (
        Function(
            lambda x, conv: conv(F.interpolate(F.max_pool2d(x, 2), scale_factor=2.0)),
            nn.Conv2d(4, 3, 3, padding=1),
        ),
        PIXELS, IMAGE,
    ),
    "lines of an open batch and length": (
        Function(lines, nn.Conv1d(4, 6, 3, padding=1), nn.LayerNorm(6),
                 nn.ConvTranspose1d(6, 4, 4, 2)),
        LINES, BATCH_LINES,
    ),
    "group norm of lines": (
        nn.Sequential(nn.Conv1d(4, 6, 3, padding=1), nn.GroupNorm(2, 6)), LINES, BATCH_LINES,
    ),
    "means over an open axis": (
        Function(lambda x, inner, out: out(inner(x).mean(1)) + out(x.transpose(1, 2).mean(-1)),
                 nn.Linear(4, 4), nn.Linear(4, 3)),
        (3, 9, 4), BATCH_ROWS,
    ),
    "a roll beside an open axis": (
        Function(lambda x, layer, out: out(layer(x).roll(2, 1)), nn.Linear(4, 4), nn.Linear(4, 4)),
        (3, 9, 4), BATCH,
    ),
    "windows of an open batch": (
        Function(windows, nn.LayerNorm((8, 8, 4)), nn.Linear(32, 6), nn.Linear(8, 3)),
        (3, 8, 8, 4), BATCH,
    ),
    "unit vectors of channels": (
        Function(lambda x, conv: conv(F.normalize(x, dim=1)), nn.Conv2d(4, 3, 1)), PIXELS, IMAGE,
    ),
    "attention of heads": (
        Function(self_attention, nn.MultiheadAttention(16, 2, batch_first=True)),
        (2, 6, 16), LENGTH,
    ),
    "a U-Net": (
        Function(unet, GROUPED, nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(16, 1, 1)),
        (2, 3, 8, 8), BATCH,
    ),
    "rows of patches and a table of places": (
        lambda x: (sixteen(PATCHES(x).flatten(2).transpose(1, 2)) + PLACES).softmax(-1),
        (1, 1, 34, 33), {2: Dim("h", min=32, max=39), 3: Dim("w", min=32, max=39)},
    ),
}  # fmt: skip
"""Compared within 1e-4 and 1e-5."""

BORDER = "finite"
MOVED: dict[str, tuple[Model, tuple[int, ...], dict[int, Any], str]] = {
    "images with a reflected border": (
        lambda x: F.pad(x.sigmoid(), (2, 1, 3, 2), "reflect").tanh(), (1, 3, 12, 13), IMAGE, BORDER,
    ),
    "images with a repeated border": (
        lambda x: F.pad(x.sigmoid(), (2, 1, 3, 2), "replicate").tanh(),
        (1, 3, 12, 13), IMAGE, BORDER,
    ),
    "whole shares of an axis": (
        lambda x: (y := (x * 2).flatten(0, 1))[: x.shape[0]].tanh()
        + y[2 * x.shape[0] : 3 * x.shape[0]].sigmoid(),
        (2, 4, 6), BATCH, "torch",
    ),
    "enlarged to four times its sizes": (
        lambda x: F.interpolate(x.sigmoid(), size=(4 * x.shape[2], 4 * x.shape[3])),
        (1, 3, 8, 7), IMAGE, "torch",
    ),
    "each channel several times": (
        lambda x: x.sigmoid().repeat_interleave(4, 1).tanh(), (1, 3, 8, 7), IMAGE, "torch",
    ),
    "all channels several times": (
        lambda x: x.sigmoid().repeat(1, 3, 1, 1).tanh(), (1, 3, 8, 7), IMAGE, "torch",
    ),
    "gated convolutions": (
        Function(gated, nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 2, 2, 8),
                 nn.Conv2d(8, 8, 1), nn.ConvTranspose2d(8, 4, 4, 2, 1)),
        (2, 3, 16, 12),
        {2: 2 * Dim("height", min=2, max=12), 3: 2 * Dim("width", min=2, max=12)}, "torch",
    ),
    "greatest of tokens": (
        lambda x: x - x.sin().amax((1, 2), keepdim=True), ROWS, ANY_LENGTH, BORDER,
    ),
    "least of tokens": (lambda x: x.sin().amin(1), ROWS, ANY_LENGTH, BORDER),
    "greatest of a row": (lambda x: x[:, :, 0].sin().amax(1), ROWS, ANY_LENGTH, BORDER),
    "images without their ends": (
        lambda x: (y := x.sin())[:, :, 1:-1, 2:-1] - F.pad(y, (-1, -2, -2, 0)), (1, 3, 8, 9),
        IMAGE, BORDER,
    ),
    "a grid from sizes": (
        lambda x: torch.cat([x, x[:, :1, :, :1].expand(-1, -1, -1, x.shape[3]).cos()], 1).sin(),
        (1, 3, 8, 9), IMAGE, BORDER,
    ),
    "windows at every element": (lambda x: x.sin().unfold(1, 2, 1).tanh(), ROWS, LENGTH, BORDER),
    "running sums": (lambda x: x.cumsum(1).tanh(), ROWS, ANY_LENGTH, BORDER),
    "running sums of exponentials": (
        lambda x: x.logcumsumexp(1).tanh(), ROWS, ANY_LENGTH, BORDER,
    ),
    "shifted by concatenation": (
        lambda x: torch.cat([(y := x.sin())[:, 2:], y[:, :2]], 1).cos(), ROWS, LENGTH, "torch",
    ),
    "rows without their ends": (
        lambda x: (y := x.sin())[:, 1 : y.shape[1] - 1].mT.cos(), ROWS, LENGTH, "torch",
    ),
    "rows of any batch without the last": (
        lambda x: x.sin()[:, :-2].cos(), ROWS, BATCH_ROWS, "torch",
    ),
    "causal convolutions": (
        Function(wave, *(nn.Conv1d(6, 12, 2, dilation=2**i) for i in range(3))),
        (2, 6, 16), {2: Dim("length", min=8, max=40)}, "torch",
    ),
}  # fmt: skip
"""With what numerics, and compared within 1e-5 and 1e-5."""
MOST_TRANSPOSES = {"gated convolutions": 2, "causal convolutions": 6}
"""Three convolutions: channels are cut where they do not come last, which takes less."""


@pytest.mark.parametrize("name", WHOLE)
def test_what_reduces_static_axes_or_whole_planes_is_one_delegate(name: str) -> None:
    model, shape, dynamic = WHOLE[name]
    lowered = lower(model, torch.randn(shape), dynamic=dynamic)
    assert_whole(lowered)
    assert_as_eager_within(lowered, model, shape, dynamic, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_open_size_is_one_delegate(name: str) -> None:
    model, shape, dynamic = PROGRAMS[name]
    lowered = lower(model, torch.randn(shape), dynamic=dynamic)
    assert_whole(lowered)
    assert_as_eager_within(lowered, model, shape, dynamic, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MOVED)
def test_what_moves_elements_of_open_axes_is_one_delegate(name: str) -> None:
    model, shape, dynamic, numerics = MOVED[name]
    lowered = lower(model, torch.randn(shape), dynamic=dynamic, numerics=numerics)
    assert_whole(lowered)
    moved = [op for op in lowered.program.module.walk() if op.name == "xnnpack.static_transpose"]
    assert len(moved) <= MOST_TRANSPOSES.get(name, len(moved))
    assert_as_eager_within(lowered, model, shape, dynamic, rtol=1e-5, atol=1e-5)


def test_an_input_is_cut_into_patches_before_the_delegate() -> None:
    shape, sides = (1, 3, 8, 10), {2: Dim("height", min=2, max=12), 3: Dim("width", min=2, max=12)}
    dynamic = {axis: 2 * size for axis, size in sides.items()}
    model = lambda x: (  # noqa: E731
        x.reshape(1, 3, x.shape[2] // 2, 2, x.shape[3] // 2, 2)
        .permute(0, 2, 4, 3, 5, 1).flatten(3).softmax(-1).flatten(1, 2).sin()
    )  # fmt: skip
    lowered = lower(model, torch.randn(shape), dynamic=dynamic)
    assert lowered.report.delegates == 1
    assert_as_eager_within(lowered, model, shape, dynamic, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_a_mask_of_lengths_is_a_factor_in_the_delegate(value: float) -> None:
    def model(x: Tensor, length: Tensor) -> Tensor:
        mask = torch.arange(x.shape[1]) >= length
        return torch.where(mask[:, None], x.sin().masked_fill(mask[:, None], value), x.cos()).exp()

    x, length = torch.randn(1, 9, 4), torch.tensor([5])
    lowered = lower(model, x, length, numerics="finite")
    assert lowered.report.delegates == 1
    for number in (0, 5, 9):
        assert_as_eager(lowered, model, x, torch.tensor([number]), rtol=1e-5, atol=1e-5)
    assert lower(model, x, length).report.delegates == 2


@pytest.mark.parametrize("options", [{"ranges": {0: (-8, 8)}}, {"numerics": "finite"}])
def test_a_pixel_shuffle_multiplies_by_zero_where_activations_are_numbers(options: Any) -> None:
    model = Function(
        lambda x, conv, again: again(F.pixel_shuffle(conv(x), 2)),
        nn.Conv2d(4, 12, 3, padding=1),
        nn.Conv2d(3, 3, 1),
    )
    lowered = lower(model, torch.randn(3, 4, 9, 8), dynamic=ALL, **options)
    assert_whole(lowered)
    for shape in ((3, 4, 9, 8), (2, 4, 24, 6)):
        x = torch.randn(shape).clamp(-8, 8)
        assert_as_eager(lowered, model, x, rtol=1e-4, atol=1e-5)


class Tail(nn.Module):
    """Some rows of what layers give of all."""

    def __init__(self, *cuts: slice) -> None:
        super().__init__()
        self.first, self.last, self.cuts = nn.Linear(16, 16), nn.Linear(16, 4), cuts

    def forward(self, x: Tensor) -> Tensor:
        rows = self.first(x).exp()
        parts = [rows[:, cut] for cut in self.cuts]
        return self.last(parts[0] if len(parts) == 1 else parts[0] - parts[1])


SIZED = {"aten.sym_size.int", "aten.full.default"}
PARTLY: dict[str, tuple[Model, dict[int, Any], int, set[str]]] = {
    "a deviation": (
        lambda x: torch.cat([x.std(1, correction=0), x.exp().var(1)], -1),
        {1: Dim("l", min=2, max=24)}, 1, SIZED,
    ),
    "a corrected deviation": (
        lambda x: torch.cat([x.std(1, correction=1), x.exp().var(1)], -1),
        {1: Dim("l", min=2, max=24)}, 1, SIZED,
    ),
    "a weighted sum": (
        Function(lambda x, scores, out: out((scores(x).softmax(1) * x).sum(1)),
                 nn.Linear(16, 16), nn.Linear(16, 3)),
        BATCH_ROWS, 1, SIZED,
    ),
    "a length that divides": (
        lambda x: F.normalize(x.exp(), dim=1).exp(), LENGTH, 1, SIZED,
    ),
    "a sum of all halves": (lambda x: x.half().sum().float(), LENGTH, 2, SIZED | {"sym.mul"}),
    "the last row": (Tail(slice(-1, None)), LENGTH, 1, {"aten.slice.Tensor"}),
    "the last rows": (Tail(slice(-3, None)), LENGTH, 1, {"aten.slice.Tensor"}),
    "all but the ends": (Tail(slice(1, -1)), LENGTH, 1, set()),
    "of the last three the second": (
        Tail(slice(-3, None), slice(-2, -1)), LENGTH, 1, {"aten.slice.Tensor"},
    ),
    "all are read, and nothing is gained ahead": (
        Tail(slice(1, None), slice(None, -1)), LENGTH, 1, set(),
    ),
    "greatest tokens, or NaN": (
        lambda x: x - x.sin().amax((1, 2), keepdim=True), LENGTH, 1, SIZED | {"sym.mul"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTLY)
def test_a_size_is_asked_for_and_the_end_of_an_axis_is_cut_off_outside(name: str) -> None:
    model, dynamic, delegates, outside = PARTLY[name]
    lowered = lower(model, torch.randn(ROWS), dynamic=dynamic)
    assert (lowered.report.delegates, {*lowered.report.outside}) == (delegates, outside)
    assert_as_eager_within(lowered, model, ROWS, dynamic, rtol=1e-4, atol=1e-5)


LINE = {2: Dim("n", min=10, max=24)}
ENDS: dict[str, Callable[[Tensor], Tensor]] = {
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


@pytest.mark.parametrize("name", ENDS)
def test_the_end_of_an_open_line_is_in_the_delegate(name: str) -> None:
    lowered = lower(ENDS[name], torch.randn(2, 4, 12), dynamic=LINE, numerics="finite")
    assert lowered.report.stages == 1
    assert not {"aten.expand.default", "aten.reflection_pad1d.default"} & {*lowered.report.outside}
    assert_as_eager_within(lowered, ENDS[name], (2, 4, 12), LINE, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "outside"),
    [
        (lambda x: F.pad(x * 2, (2, 2), "reflect") + 1, {"aten.reflection_pad1d.default"}),
        (ENDS["mean beside each"], set[str]()),
    ],
    ids=["reflected", "mean beside each"],
)
def test_an_infinity_is_not_multiplied_by_zero(function: Model, outside: set[str]) -> None:
    lowered = lower(function, torch.randn(2, 4, 12), dynamic=LINE)
    assert outside <= {*lowered.report.outside} and lowered.report.stages <= 1 + len(outside)
    x = torch.randn(2, 4, 11)
    x[0, 1, 3], x[1, 0, 0] = torch.inf, torch.nan
    assert_as_eager(lowered, function, x)


def test_a_border_of_many_rows_is_left_to_the_kernel() -> None:
    function = Function(lambda x: F.pad(x.sigmoid(), (9, 9), "reflect"))
    lowered = lower(function, torch.randn(1, 2, 12), dynamic=LINE, numerics="finite")
    assert any("would need 9 products" in str(refusal) for refusal in lowered.report.refusals)


UNFOLDED = nn.Linear(9, 4)
ANY_LENGTH = {1: Dim.DYNAMIC(min=3, max=24)}
RIGHT: dict[str, Case] = {
    "two pieces": (lambda x: x.chunk(2, 1)[1], ROWS, ANY_LENGTH),
    "windows past the end": (
        lambda x: F.avg_pool1d(x.transpose(1, 2), 3, ceil_mode=True), ROWS, ANY_LENGTH,
    ),
    "median": (lambda x: x.median(1)[0], ROWS, ANY_LENGTH),
    "rows that are a grid by division": (
        lambda x: x.view(3, 2, x.shape[1] // 2, 16).permute(0, 3, 1, 2) * 2,
        ROWS, {1: Dim.AUTO(min=4, max=24)},
    ),
    "windows whose number is one for all sizes": (
        lambda x: UNFOLDED(sixteen(F.unfold(x, 3, stride=8).transpose(1, 2))),
        (1, 1, 28, 28), {2: Dim("h", min=27, max=34)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_pytorch_guards_is_proved_from_the_range_of_the_size(name: str) -> None:
    model, shape, dynamic = RIGHT[name]
    lowered = lower(model, torch.randn(shape), dynamic=dynamic)
    near = {"rtol": 1e-4, "atol": 1e-5} if "windows whose" in name else {}
    step = 2 if "division" in name else 1
    ((axis, dim),) = dynamic.items()
    for size in {dim.min, dim.min + step, dim.min + 2 * step, 10, dim.max - step, dim.max}:
        if dim.min <= size <= dim.max:
            sizes = [*shape[:axis], size, *shape[axis + 1 :]]
            assert_as_eager(lowered, model, torch.randn(sizes), **near)


ALONG: dict[str, Callable[[Tensor], Any]] = {
    "greatest so far": lambda x: torch.cummax(x, 1),
    "least so far": lambda x: torch.cummin((x * 4).to(torch.int32), 1),
    "running sums of exponentials": lambda x: x.logcumsumexp(-2),
    "greatest of four parts": lambda x: F.adaptive_max_pool1d(x.mT, 4, return_indices=True),
    "greatest of parts both ways": lambda x: F.adaptive_max_pool2d(x, (3, 5), return_indices=True),
    "circular padding": lambda x: F.pad(x.transpose(1, 2), (2, 1), mode="circular"),
}


@pytest.mark.parametrize("name", ALONG)
def test_what_goes_along_an_open_axis_is_right_at_every_size(name: str) -> None:
    lowered = lower(ALONG[name], torch.randn(ROWS), dynamic={1: Dim.DYNAMIC(min=2, max=24)})
    for size in (2, 3, 8, 9, 16, 17, 24):
        x = torch.randn(3, size, 16)
        if name != "least so far":  # Which integer an infinity becomes is the CPU's.
            x[0, -2:, 3], x[1, 1, 4], x[2, 0, 5] = -torch.inf, torch.inf, torch.nan
        assert_as_eager(lowered, ALONG[name], x)


@pytest.mark.parametrize(
    ("function", "dynamic", "said"),
    [
        # Four rows are two pieces, not three.
        (lambda x: x.chunk(3, 1)[0], ANY_LENGTH, "holds only where"),
        (resized(41.0), LENGTH, "upsample_nearest1d"),  # Its share is rounded down.
    ],
    ids=["a guard that a size of the range breaks", "a factor that is no repetition"],
)
def test_a_program_that_is_not_right_at_every_size_is_refused(
    function: Model, dynamic: dict[int, Any], said: str
) -> None:
    with pytest.raises(stepwell.StepwellError, match=said):
        stepwell.lower(exported(function, torch.randn(ROWS), dynamic=dynamic), "xnnpack")


def test_a_norm_of_turned_rows_runs_at_its_level_too() -> None:
    model = Function(lambda x: F.instance_norm(x.mT).mT)  # Of two open axes its kernel stays.
    lowered = lower(model, torch.randn(ROWS), dynamic=BATCH_ROWS)
    for program in (lowered, lowered.program):
        assert_as_eager(program, model, torch.randn(2, 7, 16), rtol=1e-4, atol=2e-5)
