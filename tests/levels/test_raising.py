"""A program at a target's level goes up to torch, and down to another target."""

from __future__ import annotations

import pytest
import torch
from level_programs import program
from torch.utils._pytree import tree_leaves

import stepwell
from stepwell.commands.sources import random_values
from stepwell.ir.diagnostics import StepwellError

WAYS = (
    ("resnet:resnet8", "xnnpack", "tosa-1.0+fp"),
    ("resnet:resnet8", "tosa-1.0+fp", "xnnpack"),
    ("tiny:mlp", "xnnpack", "xnnpack"),
    ("transformer:transformer_encoder_2layers", "tosa-1.0+fp", "xnnpack"),
)


@pytest.mark.parametrize(("name", "target", "other"), WAYS)
def test_an_artefact_goes_to_another_target_and_to_torch(
    name: str, target: str, other: str
) -> None:
    source = program(name)
    data = stepwell.emit(source, target)
    read = stepwell.read_tosa if target.startswith("tosa") else stepwell.read_pte
    held = read(data)
    up = held.raise_to("aten")
    up.verify()
    assert (up.level, held.level != "aten") == ("aten", True)
    inputs = random_values(source, "forward", 0)
    (wanted, *_) = source.run(*inputs)
    (in_torch,) = tree_leaves(up.to_exported_program().module()(*inputs))
    (lowered,) = stepwell.lower(up, other).program.run(*inputs)
    for got in (in_torch, lowered):
        torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-4)


def test_quantised_nodes_have_no_way_up_and_are_named() -> None:
    held = stepwell.lower(program("quantised:cnn_per_tensor"), "xnnpack").program
    with pytest.raises(StepwellError, match=r"xnnpack\.convert: what it means is said by no op"):
        held.raise_to("aten")


def test_a_level_without_a_way_up_says_so() -> None:
    lowered = stepwell.lower(program("quantised:cnn_per_tensor"), "cortex-m55")
    with pytest.raises(StepwellError, match="level 'cmsis' has no way up to aten"):
        lowered.program.raise_to("aten")
    with pytest.raises(StepwellError, match="no way leads up to level 'xnnpack'"):
        lowered.program.raise_to("xnnpack")
