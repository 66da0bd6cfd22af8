"""Channels are scaled against each other: nothing changes in floats, and integers lose less."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepwell
from stepwell.quantization.recovery.equalization import Gauge
from stepwell.quantization.recovery.weights import Weights
from stepwell.quantization.sensitivity.measure import imported
from stepwell.quantization.sensitivity.quantization_points import Quantized, paired
from stepwell.quantization.sensitivity.replay import Playback


class Block(nn.Module):
    """A residual block of attention with rotated keys, then a gated unit."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(16), nn.LayerNorm(16)
        self.q, self.k, self.v, self.proj = (nn.Linear(16, 16) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (f(y).unflatten(-1, (2, 8)).transpose(1, 2) for f in (self.q, self.k, self.v))
        left, right = k.chunk(2, -1)
        k = k * 0.8 + torch.cat((-right, left), -1) * 0.6
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def attending() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), Block(), nn.Linear(16, 6)).eval()


def uneven(act: type[nn.Module], spread: float = 1.5) -> nn.Module:
    """A depthwise net of channels of very different size, which the next layer takes back."""
    torch.manual_seed(3)
    first, deep = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1, groups=16)
    point, last = nn.Conv2d(16, 16, 1), nn.Linear(256, 6)
    scale = torch.logspace(-spread, spread, 16)[torch.randperm(16)]
    with torch.no_grad():
        for into, out, by in ((first, deep, scale), (deep, point, scale.flip(0))):
            into.weight.mul_(by[:, None, None, None])
            into.bias.mul_(by)  # pyright: ignore
            out.weight.div_(by.reshape((-1, 1, 1, 1) if out is deep else (1, -1, 1, 1)))
        last.weight.mul_(8)
    layers = [first, act(), deep, act(), point, act(), nn.MaxPool2d(2), nn.Flatten(), last]
    return nn.Sequential(*layers).eval()


def images(seed: int, count: int) -> list[Any]:
    random = torch.Generator().manual_seed(seed)
    return [((torch.randn(64, 1, 8, 8, generator=random),), None) for _ in range(count)]


def pair_of(model: nn.Module, form: str, x: Tensor) -> Quantized:
    source = imported(model, (x,))
    if form.startswith("fp"):
        return paired(stepwell.to_mxfp(source, form, convolutions=True, attention=True), source)
    return paired(imported(stepwell.quantize(model, form, [x]), (x,)), source)


@pytest.mark.parametrize(
    ("model", "form", "shape", "groups"),
    [
        (lambda: uneven(nn.ReLU, 0.1), "int8-tosa", (4, 1, 8, 8), 3),
        # Norms, queries with keys, values, the upper half of the gated unit; norms end the sum.
        (attending, "fp4e2m1", (2, 5, 16), 5),
        (attending, "8da8w", (2, 5, 16), 5),
    ],
)
def test_scales_of_channels_change_nothing_in_floats(
    model: Any, form: str, shape: tuple[int, ...], groups: int
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    pair = pair_of(model(), form, x)
    plays = [Playback(pair, (x,), free=True)]
    gauge = Gauge.of(Weights.of(pair), plays)
    logarithms = torch.zeros(len(gauge.roots))
    found = list(gauge.groups())
    for group in found:
        logarithms[group] = torch.randn(len(group), generator=torch.Generator().manual_seed(2))
    assert len(found) == groups, found
    scaled = gauge.scaled(logarithms)
    (wanted,), (now,) = plays[0].outputs, Playback(scaled.pair, (x,), free=True).outputs
    assert float((now - wanted).abs().max()) < 1e-5 * float(wanted.abs().max())
    (quantized,), (written,) = scaled.run((x,)).outputs, scaled.program().run(x)
    if not form.startswith("fp"):  # Whose products have an order of sums of their own.
        assert torch.equal(quantized, written)
    assert float((quantized - wanted).norm()) < 0.5 * float(wanted.norm())


@pytest.mark.parametrize(
    ("form", "target"), [("int8-xnnpack", "xnnpack"), ("int8-tosa", "tosa-1.0+int")]
)
def test_channels_of_different_size_are_made_alike(form: str, target: str) -> None:
    found = stepwell.accuracy(
        uneven(nn.ReLU), target, images(1, 2), quantize=form, levels=0, most=2, fit=images(2, 2),
        cures=("balancing",),
    )  # fmt: skip
    assert found.cures[0].kept and found.cures[0].recovered > 0.9, str(found)
    assert found.program is not None
    lowered = stepwell.lower(found.program, target)
    assert not lowered.report.outside
    if target == "xnnpack":
        (x,) = images(5, 1)[0][0]
        (given,), (wanted,) = lowered.run(x), found.program.run(x)
        assert float((given - wanted).abs().mean()) < 0.01 * float(wanted.abs().mean())
        with pytest.raises(stepwell.StepwellError, match="were balanced"):
            stepwell.accuracy(uneven(nn.ReLU), target, images(1, 1), quantized=found.program)


def test_where_a_function_ends_every_channel_nothing_is_scaled() -> None:
    with pytest.raises(stepwell.StepwellError, match="the ops in between do not allow it"):
        stepwell.accuracy(
            uneven(nn.ReLU6), "xnnpack", images(1, 2), levels=0, most=2, cures=("balancing",)
        )
