"""PadToSlices: the modes and ranks, and what it leaves alone."""

from typing import Any

import pytest
import torch

from stepwell.translate.decompositions.aten import slices
from stepwell.translate.decompositions.aten.slices import WIDEST_BORDER
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


@pytest.mark.parametrize("name", ["reflection_pad1d", "replication_pad1d"])
def test_the_operators_named_after_the_modes_are_spelled_too(name: str, apply: Any, method: Any):
    text = method(
        "%x: tensor<2x5xf32>",
        f"%y = aten.{name}.default(%x, [1, 2]) : (tensor<2x5xf32>) -> tensor<2x8xf32>",
        gives="tensor<2x8xf32>",
    )
    assert f"aten.{name}.default" not in apply(text, step(slices.pad_to_slices)).ops()


def test_a_constant_border_is_left_alone(refused: Any, method: Any):
    refused(padded("constant", "[1, 1]", method, "1x2x4x7"), step(slices.pad_to_slices))


def test_a_negative_border_is_refused(refused: Any, method: Any):
    refused(
        padded("replicate", "[-1, 1, 0, 0]", method, "1x2x4x5"), step(slices.pad_to_slices), "crops"
    )


def test_a_wide_reflection_is_refused(refused: Any, method: Any):
    wide = WIDEST_BORDER + 1
    text = method(
        "%x: tensor<2x20xf32>",
        f'%y = aten.pad.default(%x, [{wide}, 0], "reflect")'
        f" : (tensor<2x20xf32>) -> tensor<2x{20 + wide}xf32>",
        gives=f"tensor<2x{20 + wide}xf32>",
    )
    refused(text, step(slices.pad_to_slices), "that many slices")


def test_a_symbolic_size_is_refused(refused: Any, method: Any):
    given = 'tensor<5x?xf32, #stepwell.shape<[5, "s0"]>>'
    made = 'tensor<5x?xf32, #stepwell.shape<[5, "s0 + 2"]>>'
    text = method(
        f"%x: {given}",
        f'%y = aten.pad.default(%x, [1, 1], "replicate") : ({given}) -> {made}',
        gives=made,
    )
    refused(text, step(slices.pad_to_slices), "the size is dynamic")
