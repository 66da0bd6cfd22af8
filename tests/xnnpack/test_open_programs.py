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


LENGTH = {1: Dim("length", min=2, max=32)}
SAMPLES = {2: Dim("samples", min=4, max=32)}
IMAGE = {2: Dim("height", min=4, max=32), 3: Dim("width", min=4, max=32)}
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
    "unit vectors of channels": (
        Written(unit, nn.Conv2d(4, 3, 1)),
        IMAGE,
        ((1, 4, 9, 8), (1, 4, 32, 5)),
    ),
}


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_a_program_of_open_size_is_whole(case: str) -> None:
    model, axes, shapes = CASES[case]
    program = torch.export.export(
        model.eval(), (torch.randn(shapes[0]),), dynamic_shapes=((axes,),)
    )
    lowered = stepwell.lower(program, "xnnpack")
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    for shape in shapes:
        given = torch.randn(shape)
        torch.testing.assert_close(lowered.run(given)[0], model(given), rtol=1e-4, atol=1e-5)
