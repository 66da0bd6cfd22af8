"""Depthwise convolutions of halves are computed in the precision that takes a CPU less time."""

import pytest
import torch
from torch import nn

import stepwell
from stepwell.dialects.xnnpack import Convolution2d, DepthwiseConvolution2d
from stepwell.dialects.xnnpack.costs import load
from stepwell.ir.dtypes import f16, f32
from stepwell.ir.types import element


def lowered(layer: nn.Module, x: torch.Tensor, **options: str) -> stepwell.Lowered:
    exported = torch.export.export(layer.eval().half(), (x.half(),))
    return stepwell.lower(exported, "xnnpack", **options)


def types_of(made: stepwell.Lowered) -> set[object]:
    """The element types that convolutions compute in."""
    nodes = (Convolution2d, DepthwiseConvolution2d)
    return {
        element(op.results[0].type) for op in made.program.module.walk() if isinstance(op, nodes)
    }


@pytest.mark.parametrize("window", [3, 5, 7])
@pytest.mark.parametrize("stride", [1, 2])
def test_x86_takes_singles_between_two_converts(window: int, stride: int) -> None:
    layer = nn.Conv2d(32, 32, window, stride, window // 2, groups=32)
    x = torch.randn(1, 32, 14, 14)
    made = lowered(layer, x)
    assert types_of(made) == {f32} and made.report.delegates == 1 and not made.report.outside
    want = layer.float()(x.half().float())  # The layer's numbers are halves still.
    torch.testing.assert_close(made.run(x.half())[0].float(), want, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("channels", "groups", "size", "options"),
    [(32, 32, 14, {"cpu": "neoverse-v1"}), (32, 1, 14, {}), (32, 4, 14, {}), (2, 2, 1, {})],
    ids=["a core with a faster kernel of halves", "one group", "four groups", "one pixel"],
)
def test_other_convolutions_stay_in_halves(
    channels: int, groups: int, size: int, options: dict[str, str]
) -> None:
    layer = nn.Conv2d(channels, channels, 3, padding=1, groups=groups)
    assert types_of(lowered(layer, torch.randn(1, channels, size, size), **options)) == {f16}


def test_a_larger_window_has_the_times_of_the_largest() -> None:
    costs = load()
    assert costs.window_of_halves(49) / costs.window(49) == pytest.approx(costs.halves[-1])
    assert costs.window_of_halves(9) / costs.window(9) == pytest.approx(costs.halves[2])
