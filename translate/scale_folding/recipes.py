"""Recipes that fold per-channel constants into a layer's weight `[out, in, …]`."""

from __future__ import annotations

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.platform.weight_rows import blocks_of_rows
from stepwell.ir.weights import recipe


@recipe("scale_columns", "of the first")
def scale_columns(weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return `W · diag(g)`: each input feature of a linear weight `[out, in]` scaled."""
    return weight * scale.reshape(-1).expand(weight.shape[-1])


@recipe("shift_through_linear")
def shift_through_linear(
    weight: torch.Tensor, shift: torch.Tensor, *rest: torch.Tensor
) -> torch.Tensor:
    """Return `W·b + c`: the effect of an input shift on the output; summed in f64."""
    given = shift.reshape(-1).expand(weight.shape[-1]).double()
    moved = torch.cat([weight[rows].double() @ given for rows in blocks_of_rows(weight)])
    for bias in rest:
        moved = moved + bias.double()
    return moved.to(weight.dtype)


@recipe("scale_input_channels")
def scale_input_channels(kernel: torch.Tensor, scale: torch.Tensor, *, groups: int) -> torch.Tensor:
    """Return a kernel `[out, in / groups, …]` with every input channel times its factor."""
    return (kernel.double() * _of_inputs(kernel, scale, groups)).to(kernel.dtype)


@recipe("shift_through_convolution")
def shift_through_convolution(
    kernel: torch.Tensor, shift: torch.Tensor, *bias: torch.Tensor, groups: int
) -> torch.Tensor:
    """Return the effect of an input shift on every output, plus the bias; summed in f64."""
    moved = (kernel.double() * _of_inputs(kernel, shift, groups)).flatten(1).sum(1)
    for held in bias:
        moved = moved + held.double()
    return moved.to(kernel.dtype)


def _of_inputs(kernel: torch.Tensor, constant: torch.Tensor, groups: int) -> torch.Tensor:
    """Expand a constant per input channel to the shape of the kernel."""
    outputs, inputs, *space = kernel.shape
    spread = constant.double().reshape(-1).expand(groups * inputs).reshape(groups, inputs)
    return spread.repeat_interleave(outputs // groups, 0).reshape(
        outputs, inputs, *(1,) * len(space)
    )


@recipe("scale_by_number", "of the first")
def scale_by_number(tensor: torch.Tensor, *, factor: float) -> torch.Tensor:
    """Return a weight or bias times a number."""
    return tensor * factor


@recipe("scale_rows")
def scale_rows(tensor: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return each output feature of a weight `[out, …]` or bias `[out]` times its factor."""
    rows = scale.reshape(-1).expand(tensor.shape[0])
    return tensor * rows.reshape(-1, *([1] * (tensor.dim() - 1)))


@recipe("add_bias")
def add_bias(bias: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
    """Return the sum of a bias `[out]` and a constant that broadcasts along the output features."""
    return bias + more.reshape(-1).expand(bias.shape[0])


@recipe("as_bias")
def as_bias(constant: torch.Tensor, *, features: int) -> torch.Tensor:
    """Return a constant that broadcasts along the output features as a bias `[features]`."""
    return constant.reshape(-1).expand(features).contiguous()
