"""Derived weights of the cmsis level alone; those of any integers stand in `quant/recipes.py`."""

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
    """int32 [1, N]: what `arm_fully_connected_s8` reads on MVE, the bias in it."""
    if weight.is_meta:  # Its shape is plain; torch's meta kernels take milliseconds to say so.
        return weight.new_empty((1, weight.shape[0]), dtype=torch.int32)
    return arithmetic.kernel_sum(weight, bias, input_offset, filter_offset)
