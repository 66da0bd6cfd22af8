"""Derived weights that only the cmsis level uses; `quant/recipes.py` has those for any integers."""

from __future__ import annotations

from stepwell.dialects.cmsis import arithmetic
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.weights import recipe


@recipe("cmsis.kernel_sum")
def kernel_sum(
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    input_offset: int = 0,
    filter_offset: int = 0,
) -> torch.Tensor:
    """Compute the kernel sum that `arm_fully_connected_s8` reads on MVE, including the bias: int32
    [1, N].
    """
    # The shape is simple; torch's meta kernels would take milliseconds to infer it.
    if weight.is_meta:
        return weight.new_empty((1, weight.shape[0]), dtype=torch.int32)
    return arithmetic.kernel_sum(weight, bias, input_offset, filter_offset)
