"""Recipes of `executorch.export` that lower with stepwell: XNNPACK's own, with our partitioner.

    from stepwell.integrations.executorch.recipes import StepwellRecipeType

    session = executorch.export.export(
        model, [inputs], ExportRecipe.get_recipe(StepwellRecipeType.FP32)
    )
    session.save_to_pte("model.pte")

A model is quantized as in ExecuTorch's recipe of the same name. The registry knows the provider
after an import of this module: ExecuTorch 1.5 does not search entry points.
"""

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
    """The kinds of recipes: ExecuTorch's for XNNPACK, with a lowering by stepwell."""

    FP32 = "stepwell_fp32"
    PT2E_INT8_DYNAMIC_PER_CHANNEL = "stepwell_pt2e_int8_dynamic_per_channel"
    PT2E_INT8_STATIC_PER_CHANNEL = "stepwell_pt2e_int8_static_per_channel"
    PT2E_INT8_STATIC_PER_TENSOR = "stepwell_pt2e_int8_static_per_tensor"
    TORCHAO_INT8_DYNAMIC_ACT_INT4_WEIGHT_PER_CHANNEL = "stepwell_torchao_int8da_int4w_per_channel"
    TORCHAO_INT8_DYNAMIC_ACT_INT4_WEIGHT_PER_TENSOR = "stepwell_torchao_int8da_int4w_per_tensor"

    @classmethod
    def get_backend_name(cls) -> str:
        """Return the provider's name in ExecuTorch's registry of recipes."""
        return BACKEND


class StepwellRecipeProvider(BackendRecipeProvider):
    """A provider of the recipes in `StepwellRecipeType`."""

    @property
    def backend_name(self) -> str:
        """Return the backend's name, `stepwell`."""
        return BACKEND

    def get_supported_recipes(self) -> Sequence[RecipeType]:
        """Return every type of recipe that stepwell provides."""
        return list(StepwellRecipeType)

    def create_recipe(self, recipe_type: RecipeType, **kwargs: Any) -> ExportRecipe | None:
        """Create a recipe; return None if the type belongs to another backend.

        Args:
            recipe_type: the type of the recipe.
            kwargs: arguments of ExecuTorch's recipe of the same name (`group_size`).

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
                help="available are " + ", ".join(XNNPackRecipeType.__members__),
            )
        config = recipe.lowering_recipe.edge_compile_config if recipe.lowering_recipe else None
        recipe.name = str(recipe_type.value)
        recipe.lowering_recipe = LoweringRecipe(
            partitioners=[StepwellPartitioner()], edge_compile_config=config
        )
        return recipe


recipe_registry.register_backend_recipe_provider(StepwellRecipeProvider())
