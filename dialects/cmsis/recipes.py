"""Derived weights of the cmsis level: layouts, kernel sums, biases. Evaluated when needed."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.dialects.cmsis import arithmetic
from stepwell.ir.on_demand import torch
from stepwell.ir.weights import recipe


@recipe("cmsis.permute")
def permute(weight: torch.Tensor, permutation: Sequence[int]) -> torch.Tensor:
    """The weight under permuted dimensions, dense."""
    return weight.permute(tuple(permutation)).contiguous()


@recipe("cmsis.reshape")
def reshape(weight: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The weight under another shape."""
    return weight.reshape(tuple(shape))


@recipe("cmsis.expand")
def expand(weight: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The weight broadcast to a shape, written out."""
    return weight.expand(tuple(shape)).contiguous()


@recipe("cmsis.compose")
def compose(outer: torch.Tensor, inner: torch.Tensor) -> torch.Tensor:
    """int8 [256]: the outer table at the inner table's entries."""
    if outer.is_meta:
        return torch.empty_like(outer)
    return outer[inner.to(torch.int64) + 128]


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


@recipe("cmsis.bias")
def bias(
    values: torch.Tensor, scales: Sequence[float], unit: Sequence[float] | None = None
) -> torch.Tensor:
    """int32 biases at the accumulators' `scales`, from reals, or from integers of scale `unit`."""
    if values.is_meta:
        return torch.empty_like(values, dtype=torch.int32)
    real = values.to(torch.float64)
    if unit is not None:
        real = real * real.new_tensor(list(unit))
    stored = torch.round(real / real.new_tensor(list(scales)))
    return stored.clamp(-(1 << 31), (1 << 31) - 1).to(torch.int32)
