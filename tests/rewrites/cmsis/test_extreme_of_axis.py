"""`extreme-of-axis`, and means as convolutions of one channel: fewer floats, less scratch."""

from typing import Any

import torch
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import stepwell
from stepwell.translate.lowerings.cmsis import pooling
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

REAL, PLACES = "tensor<2x4xf32>", "tensor<2xf32>, tensor<2xi64>"
BYTES = "tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>"
READ = f"%a = quant.dcast %x : {BYTES} to {REAL}"
FOUND = f"%y, %i = aten.max.dim(%a, 1) : ({REAL}) -> ({PLACES})"


def test_a_maximum_whose_places_nobody_reads_has_none(apply: Any, method: Any) -> None:
    text = method(f"%x: {BYTES}", READ, FOUND, gives="tensor<2xf32>")
    assert apply(text, step(pooling.extreme_of_axis)).ops() == ["quant.dcast", "aten.amax.default"]


def test_a_maximum_of_floats_keeps_its_form(refused: Any, method: Any) -> None:
    text = method(f"%a: {REAL}", FOUND, gives="tensor<2xf32>")
    refused(text, step(pooling.extreme_of_axis))


def test_a_maximum_whose_places_are_read_keeps_them(refused: Any, method: Any) -> None:
    line = "%z = aten.abs.default(%i) : (tensor<2xi64>) -> tensor<2xi64>"
    text = method(f"%x: {BYTES}", READ, FOUND, line, gives="tensor<2xf32>")
    text = text.replace("func.return %y : tensor<2xf32>", "func.return %z : tensor<2xi64>")
    text = text.replace("-> tensor<2xf32> {", "-> tensor<2xi64> {")
    refused(text, step(pooling.extreme_of_axis), "the indices of the maxima are used")


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
