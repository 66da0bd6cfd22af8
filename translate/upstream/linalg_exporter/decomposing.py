"""PyTorch's own decompositions of operators that are not exported as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch

from stepwell.ir.compat.torch.torch_globals import torch_alone
from stepwell.ir.compat.torch.torch_private import decomposition_table
from stepwell.ir.program import Program
from stepwell.translate.exporter.to_torch import to_exported_program
from stepwell.translate.importer.from_torch import from_exported_program


def decomposed(program: Program) -> Program:
    """Return an equivalent program in PyTorch's core operators, by its own decompositions."""
    more = {
        operator: function
        for operator, function in decomposition_table.items()
        if str(operator).split(".")[1:2] in _PACKETS
    }
    exported = to_exported_program(program)
    with torch_alone(), torch.no_grad():
        table = torch.export.default_decompositions()
        table.pop(torch.ops.aten.roll.default)  # It would become an index of remainders.
        exported = exported.run_decompositions({**table, **more, **_OURS})
    return from_exported_program(exported)


_TAKEN_APART = (
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training "
    "linalg_vector_norm hardshrink tril triu upsample_nearest2d upsample_bilinear2d repeat "
    "_scaled_dot_product_flash_attention_for_cpu _safe_softmax"
).split()
"""Operators that PyTorch decomposes on request."""
_PACKETS = [[name] for name in _TAKEN_APART]


def _variance(
    x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> torch.Tensor:
    axes = list(range(x.dim())) if not dim else list(dim)
    count = prod(x.shape[axis] for axis in axes)
    centered = x - x.mean(axes, keepdim=True)
    lost = 1 if correction is None else correction
    return (centered * centered).sum(axes, keepdim=keepdim) / (count - lost)


def _variance_and_mean(
    x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    axes = list(range(x.dim())) if not dim else list(dim)
    return _variance(x, axes, correction=correction, keepdim=keepdim), x.mean(axes, keepdim=keepdim)


def _group_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    n: int,
    channels: int,
    size: int,
    groups: int,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    parts = x.reshape(n, groups, -1)
    mean = parts.mean(2, keepdim=True)
    centered = parts - mean
    scale = torch.rsqrt((centered * centered).mean(2, keepdim=True) + eps)
    made = (centered * scale).reshape(x.shape)
    shape = [1, channels] + [1] * (x.dim() - 2)
    made = made if weight is None else made * weight.reshape(shape)
    made = made if bias is None else made + bias.reshape(shape)
    return made, mean.reshape(n, groups), scale.reshape(n, groups)


_OURS: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten.var.correction: _variance,
    torch.ops.aten.var_mean.correction: _variance_and_mean,
    torch.ops.aten.native_group_norm.default: _group_norm,
}
"""Operators that PyTorch would decompose into operators that are not ATen's."""
