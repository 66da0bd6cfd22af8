"""What people write of open length, height and width is one delegate, right at other sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

import stepwell


class Written(nn.Module):
    """A function, and layers that it is given."""

    def __init__(self, write: Callable[..., Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.write = write

    def forward(self, *given: Tensor) -> Tensor:
        return self.write(*given, *self.layers)


def attention(x: Tensor, qkv: nn.Module, out: nn.Module) -> Tensor:
    rows, width = x.shape[1], x.shape[2]
    q, k, v = qkv(x).view(1, rows, 3, 2, width // 2).permute(2, 0, 3, 1, 4).unbind(0)
    scores = torch.einsum("bhid,bhjd->bhij", q, k) * (width // 2) ** -0.5
    y = torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), v)
    return out(y.transpose(1, 2).reshape(1, rows, width))


def causal(x: Tensor, conv: nn.Module, again: nn.Module) -> Tensor:
    y = conv(x)[:, :, :-4].contiguous().relu()
    return x + again(F.pad(y, (6, 6)))[:, :, :-6]


def trimmed(x: Tensor, up: nn.Module) -> Tensor:
    return up(x)[..., 2:-2]


def unit(x: Tensor, conv: nn.Module) -> Tensor:
    return conv(F.normalize(x, dim=1))


def enlarged(x: Tensor, conv: nn.Module) -> Tensor:
    return conv(F.interpolate(F.max_pool2d(x, 2), scale_factor=2.0))


def lines(x: Tensor, conv: nn.Module, norm: nn.Module, again: nn.Module) -> Tensor:
    return again(F.gelu(norm(conv(x).transpose(1, 2)).transpose(1, 2)))


def normed(x: Tensor, conv: nn.Module, norm: nn.Module) -> Tensor:
    return norm(conv(x))


def averaged(x: Tensor, inner: nn.Module, out: nn.Module) -> Tensor:
    return out(inner(x).mean(1)) + out(x.transpose(1, 2).mean(-1))


def pooled(x: Tensor, scores: nn.Module, out: nn.Module) -> Tensor:
    return out((scores(x).softmax(1) * x).sum(1))


def shuffled(x: Tensor, conv: nn.Module, again: nn.Module) -> Tensor:
    return again(F.pixel_shuffle(conv(x), 2))


def moved(x: Tensor, layer: nn.Module, out: nn.Module) -> Tensor:
    return out(layer(x).roll(2, 1))


def windows(x: Tensor, norm: nn.Module, matrix: nn.Module, out: nn.Module) -> Tensor:
    """Every second row, rows written, windows of seven axes, a matrix beside a batch of them."""
    y = norm(x)
    y = torch.cat([y[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], -1).clone()
    y[:, :2] = y[:, :2].relu()
    y = y.view(-1, 2, 2, 2, 2, 2, 8).permute(0, 1, 3, 5, 2, 4, 6).reshape(-1, 32, 8)
    return out(matrix.weight @ y)


BATCH = Dim("batch", min=2, max=8)
LENGTH = {1: Dim("length", min=2, max=32)}
SAMPLES = {2: Dim("samples", min=4, max=32)}
IMAGE = {2: Dim("height", min=4, max=32), 3: Dim("width", min=4, max=32)}
LINES = ((3, 4, 9), (8, 4, 4), (2, 4, 32))
ROWS = ((3, 9, 4), (8, 2, 4), (2, 32, 4))
CASES: dict[str, tuple[nn.Module, Any, tuple[tuple[int, ...], ...]]] = {
    "attention as einsum": (
        Written(attention, nn.Linear(8, 24), nn.Linear(8, 8)),
        LENGTH,
        ((1, 5, 8), (1, 2, 8), (1, 17, 8)),
    ),
    "a causal convolution that cuts the end off": (
        Written(causal, nn.Conv1d(4, 6, 3, padding=4, dilation=2), nn.Conv1d(6, 4, 7)),
        SAMPLES,
        ((1, 4, 9), (1, 4, 4), (1, 4, 32)),
    ),
    "a transposed convolution that is trimmed": (
        Written(trimmed, nn.ConvTranspose1d(4, 3, 8, stride=4)),
        SAMPLES,
        ((1, 4, 9), (1, 4, 4), (1, 4, 32)),
    ),
    "an image that is halved and enlarged": (
        Written(enlarged, nn.Conv2d(4, 3, 3, padding=1)),
        IMAGE,
        ((1, 4, 9, 8), (1, 4, 32, 5)),
    ),
    "lines of an open batch and length": (
        Written(
            lines, nn.Conv1d(4, 6, 3, padding=1), nn.LayerNorm(6), nn.ConvTranspose1d(6, 4, 4, 2)
        ),
        {0: BATCH, **SAMPLES},
        LINES,
    ),
    "group norm of lines": (
        Written(normed, nn.Conv1d(4, 6, 3, padding=1), nn.GroupNorm(2, 6)),
        {0: BATCH, **SAMPLES},
        LINES,
    ),
    "means over an open axis": (
        Written(averaged, nn.Linear(4, 4), nn.Linear(4, 3)),
        {0: BATCH, **LENGTH},
        ROWS,
    ),
    "a pixel shuffle of an open image": (
        Written(shuffled, nn.Conv2d(4, 12, 3, padding=1), nn.Conv2d(3, 3, 1)),
        {0: BATCH, **IMAGE},
        ((3, 4, 9, 8), (2, 4, 32, 5)),
    ),
    "a roll beside an open axis": (
        Written(moved, nn.Linear(4, 4), nn.Linear(4, 4)),
        {0: BATCH},
        ((3, 9, 4), (8, 9, 4)),
    ),
    "windows of an open batch": (
        Written(windows, nn.LayerNorm((8, 8, 4)), nn.Linear(32, 6), nn.Linear(8, 3)),
        {0: BATCH},
        ((3, 8, 8, 4), (8, 8, 8, 4), (2, 8, 8, 4)),
    ),
    "unit vectors of channels": (
        Written(unit, nn.Conv2d(4, 3, 1)),
        IMAGE,
        ((1, 4, 9, 8), (1, 4, 32, 5)),
    ),
}

OF_NUMBERS = {"a pixel shuffle of an open image"}
"""Those that multiply by zero: whole where activations are proved, or taken, for numbers."""


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_a_program_of_open_size_is_whole(case: str) -> None:
    model, axes, shapes = CASES[case]
    given = {"ranges": {0: (-8, 8)}} if case in OF_NUMBERS else {}
    assert outside(model, axes, shapes, **given) == {}
    if given:
        assert outside(model, axes, shapes, numerics="finite") == {}


@torch.no_grad()
def test_a_sum_over_an_open_axis_asks_for_its_size_outside() -> None:
    model = Written(pooled, nn.Linear(4, 4), nn.Linear(4, 3))
    asked = outside(model, {0: BATCH, **LENGTH}, ROWS)
    assert asked == {"aten.sym_size.int": 1, "aten.full.default": 1}


def outside(
    model: nn.Module, axes: Any, shapes: tuple[tuple[int, ...], ...], **options: Any
) -> dict[str, int]:
    """What stays beside the one delegate of a model that is right at some sizes."""
    program = torch.export.export(
        model.eval(), (torch.randn(shapes[0]),), dynamic_shapes=((axes,),)
    )
    lowered = stepwell.lower(program, "xnnpack", **options)
    assert lowered.report.delegates == 1
    for shape in shapes:
        given = torch.randn(shape).clamp(-8, 8)
        torch.testing.assert_close(lowered.run(given)[0], model(given), rtol=1e-4, atol=1e-5)
    return dict(lowered.report.outside)
