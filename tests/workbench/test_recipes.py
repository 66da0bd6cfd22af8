"""`executorch.export` with our recipes: one changed line of a script."""

from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.recipes.xnnpack_recipe_types import XNNPackRecipeType
from executorch.export import ExportRecipe, export
from sampled import sampled
from torch import nn

import stepwell
from stepwell.integrations.executorch.recipes import StepwellRecipeProvider, StepwellRecipeType

from .versions import undecomposed


def exported_with(recipe: Any, model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> bytes:
    return export(model, [inputs], recipe).get_pte_buffer()


def test_there_is_a_recipe_for_each_of_executorchs() -> None:
    ours, theirs = StepwellRecipeType.__members__, XNNPackRecipeType.__members__
    assert list(ours) == list(theirs)
    assert StepwellRecipeProvider().create_recipe(XNNPackRecipeType.FP32) is None


@undecomposed
@pytest.mark.parametrize(
    "name",
    sampled(
        ["FP32", "PT2E_INT8_DYNAMIC_PER_CHANNEL", "PT2E_INT8_STATIC_PER_CHANNEL"],
        "FP32",
        "PT2E_INT8_STATIC_PER_CHANNEL",
    ),
)
def test_a_recipe_gives_one_delegate_and_the_numbers_of_executorchs(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)).eval()
    inputs = (torch.randn(4, 32),)
    ours = exported_with(ExportRecipe.get_recipe(StepwellRecipeType[name]), model, inputs)
    theirs = exported_with(ExportRecipe.get_recipe(XNNPackRecipeType[name]), model, inputs)
    (y,), (wanted,) = stepwell.run_pte(ours, inputs), stepwell.run_pte(theirs, inputs)
    # Static int8: a step of the output, where its sums round to the other side.
    torch.testing.assert_close(y, wanted, atol=1e-5 if name == "FP32" else 0.03, rtol=1e-4)
    assert len(stepwell.read_pte(ours).method("forward").body.block.ops) <= 4
