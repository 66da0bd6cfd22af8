"""Recipes of `executorch.export` that lower with stepwell: XNNPACK's own, with our partitioner.

    import stepwell.integrations.executorch.recipes

    session = executorch.export.export(
        model, [inputs], ExportRecipe.get_recipe(stepwell.integrations.executorch.recipes.StepwellRecipeType.FP32)
    )
    session.save_to_pte("model.pte")

How a model is quantized is what ExecuTorch's recipe of the same name says. Its registry knows a
provider once the module that has it is imported: ExecuTorch 1.5 looks for no entry points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from executorch.backends.xnnpack.recipes.xnnpack_recipe_provider import XNNPACKRecipeProvider
from executorch.backends.xnnpack.recipes.xnnpack_recipe_types import XNNPackRecipeType
from executorch.export import (
    BackendRecipeProvider,
    ExportRecipe,
    LoweringRecipe,
    RecipeType,
    recipe_registry,
)

from stepwell.integrations.executorch.partitioner import StepwellPartitioner
from stepwell.ir.diagnostics import StepwellError

BACKEND = "stepwell"


class StepwellRecipeType(RecipeType):
    """What ExecuTorch's XNNPACK recipes quantize, lowered by stepwell."""

    FP32 = "stepwell_fp32"
    PT2E_INT8_DYNAMIC_PER_CHANNEL = "stepwell_pt2e_int8_dynamic_per_channel"
    PT2E_INT8_STATIC_PER_CHANNEL = "stepwell_pt2e_int8_static_per_channel"
    PT2E_INT8_STATIC_PER_TENSOR = "stepwell_pt2e_int8_static_per_tensor"
    TORCHAO_INT8_DYNAMIC_ACT_INT4_WEIGHT_PER_CHANNEL = "stepwell_torchao_int8da_int4w_per_channel"
    TORCHAO_INT8_DYNAMIC_ACT_INT4_WEIGHT_PER_TENSOR = "stepwell_torchao_int8da_int4w_per_tensor"

    @classmethod
    def get_backend_name(cls) -> str:
        """The name under which the registry has the provider."""
        return BACKEND


class StepwellRecipeProvider(BackendRecipeProvider):
    """Makes the recipes of `StepwellRecipeType`."""

    @property
    def backend_name(self) -> str:
        """`stepwell`."""
        return BACKEND

    def get_supported_recipes(self) -> Sequence[RecipeType]:
        """Every one."""
        return list(StepwellRecipeType)

    def create_recipe(self, recipe_type: RecipeType, **kwargs: Any) -> ExportRecipe | None:
        """A recipe; None if it is another backend's.

        Args:
            recipe_type: which one.
            kwargs: as ExecuTorch's recipe of the same name takes them (`group_size`).

        Raises:
            StepwellError: the installed ExecuTorch has no recipe of that name.
        """
        if not isinstance(recipe_type, StepwellRecipeType):
            return None
        theirs = XNNPackRecipeType.__members__.get(recipe_type.name)
        recipe = None if theirs is None else XNNPACKRecipeProvider().create_recipe(theirs, **kwargs)
        if recipe is None:
            raise StepwellError(
                f"the installed ExecuTorch has no recipe {recipe_type.name}",
                help="it has " + ", ".join(XNNPackRecipeType.__members__),
            )
        config = recipe.lowering_recipe.edge_compile_config if recipe.lowering_recipe else None
        recipe.name = str(recipe_type.value)
        recipe.lowering_recipe = LoweringRecipe(
            partitioners=[StepwellPartitioner()], edge_compile_config=config
        )
        return recipe


recipe_registry.register_backend_recipe_provider(StepwellRecipeProvider())
