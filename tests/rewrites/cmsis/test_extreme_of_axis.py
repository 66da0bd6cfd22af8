"""`extreme-of-axis`, and means as convolutions of one channel: fewer floats, less scratch."""

import torch
from rewrite_cases import cases
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import stepwell
from stepwell.translate.lowerings.cmsis import pooling
from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

test_extreme_of_axis = cases(
    pooling,
    """
extreme-of-axis: a maximum whose places nobody reads has none -> quant.dcast, aten.amax.default
    %a = quant.dcast(%x: i8<0.5:3>[2, 4]); %y, %i = aten.max.dim(%a, 1); return %y
extreme-of-axis: a maximum of floats keeps its form -> unchanged
    %y, %i = aten.max.dim(%a: f32[2, 4], 1); return %y
extreme-of-axis: a maximum whose places are read keeps them -> refused: the indices of the maxima are used
    %a = quant.dcast(%x: i8<0.5:3>[2, 4]); %y, %i = aten.max.dim(%a, 1)
    %z = aten.abs.default(%i)
""",
)


class Frames(nn.Module):
    """A mean over frames."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu().mean(1)


def test_a_mean_for_memory_takes_the_scratch_of_one_channel() -> None:
    """The same integers; an MVE depthwise kernel asks 496 bytes for each of six frames."""
    torch.manual_seed(0)
    x = (torch.randn(1, 6, 16),)
    prepared = prepare_pt2e(
        torch.export.export(Frames(), x).module(check_guards=False), CortexMQuantizer()
    )
    prepared(*x)
    exported = torch.export.export(convert_pt2e(prepared), x)
    fast = stepwell.lower(exported, "cortex-m55")
    small = stepwell.lower(exported, "cortex-m55", optimize="memory")
    assert torch.equal(fast.run(*x)[0], small.run(*x)[0])
    scratch = [
        [op.number("scratch") for op in made.program.module.walk() if "scratch" in op.properties]
        for made in (fast, small)
    ]
    assert scratch[0] == [6 * 496] and scratch[1] == [64]
