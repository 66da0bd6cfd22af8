"""PadToSlices: the modes and ranks, and what it leaves alone."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases

from stepwell.translate.decompositions import slices
from stepwell.translate.lowerings.lowering import step


def padded(mode: str, amounts: str, method: Any, gives: str) -> str:
    types = f"(tensor<1x2x4x5xf32>) -> tensor<{gives}xf32>"
    return method(
        "%x: tensor<1x2x4x5xf32>",
        f'%y = aten.pad.default(%x, {amounts}, "{mode}") : {types}',
        gives=f"tensor<{gives}xf32>",
    )


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    ("amounts", "gives"), [("[2, 1, 0, 3]", "1x2x7x8"), ("[0, 0, 1, 0]", "1x2x5x5")]
)
def test_each_mode_pads_as_torch_does(mode: str, amounts: str, gives: str, apply: Any, method: Any):
    done = apply(padded(mode, amounts, method, gives), step(slices.pad_to_slices))
    assert "aten.pad.default" not in done.ops()
    x = torch.randn(1, 2, 4, 5)
    wanted = torch.nn.functional.pad(x, eval(amounts), mode)
    assert torch.equal(done.program.run(x)[0], wanted)


test_pad_to_slices = cases(
    slices,
    """
pad-to-slices: the operators named after the modes are spelled too -> aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.cat.default
    %y = aten.reflection_pad1d.default(%x: f32[2, 5], [1, 2])
pad-to-slices: the operators named after the modes are spelled too -> aten.slice.Tensor, aten.slice.Tensor, aten.expand.default, aten.cat.default
    %y = aten.replication_pad1d.default(%x: f32[2, 5], [1, 2])
pad-to-slices: a constant border -> unchanged
    %y = aten.pad.default(%x: f32[1, 2, 4, 5], [1, 1], "constant")
pad-to-slices: a negative border -> refused: crops
    %y = aten.pad.default(%x: f32[1, 2, 4, 5], [-1, 1, 0, 0], "replicate")
pad-to-slices: a wide reflection -> refused: that many slices
    %y = aten.pad.default(%x: f32[2, 20], [9, 0], "reflect")
pad-to-slices: a symbolic size -> refused: the size is dynamic
    %y = aten.pad.default(%x: f32[5, s0], [1, 1], "replicate")
""",
)
