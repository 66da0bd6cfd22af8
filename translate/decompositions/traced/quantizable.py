"""Decompositions into operators that have int8 kernels, which PT2E annotates.

PT2E inserts its observers into `torch.fx` graphs, so these operators are decomposed before a program
is imported (`translate/pt2e/decompose_for_annotation.py`). They have forms of their own, in which
every part has an int8 kernel and a range of its own. Layer norm becomes two products with a constant
matrix (mean and variance, each already broadcast over its row), a subtraction, two products and a
table for 1/√. Means instead would be expanded by two operators, as CMSIS-NN broadcasts along
channels alone. Group norms and standard deviations use means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from stepwell.translate.decompositions.traced.resizes import RESIZES, is_static
from stepwell.translate.decompositions.traced.statistics import native_group_norm, of_channels

aten = torch.ops.aten

LONGEST_LOGARITHM = 64
"""Steps of the sum are a 255th of the row: for a sum of 1, its logarithm is off by 0.12 at most."""


def layer_norm(
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Any:
    """Decompose layer norm: mean and variance are products with a matrix of equal numbers."""
    if len(shape) != 1 or not is_static(shape):
        return NotImplemented
    mean = torch.full((shape[0], shape[0]), 1.0 / shape[0])
    centered = x - linear(x, mean)
    return _scaled(centered, linear(centered * centered, mean) + eps, weight, bias)


def _scaled(
    centered: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None = None
) -> Tensor:
    """Return numbers over the root of their variance, times the weight, plus the bias."""
    value = centered * torch.rsqrt(variance)
    value = value if weight is None else value * weight
    return value if bias is None else value + bias


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Compute attention without a mask."""
    if mask is not None or is_causal or enable_gqa:
        return NotImplemented
    scores = torch.matmul(query, key.transpose(-2, -1)) * (
        scale or 1.0 / math.sqrt(query.shape[-1])
    )
    return torch.matmul(scores.softmax(-1), value)


def group_norm(
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Any:
    """Decompose group norm into means of rows, which are the groups."""
    if not is_static(x.shape) or x.dim() < 3:
        return NotImplemented
    batch, channels, *sizes = x.shape
    return native_group_norm(x, weight, bias, batch, channels, math.prod(sizes), groups, eps)[0]


def instance_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """Decompose instance norm into a group norm of single channels."""
    if running_mean is not None or not use_input_stats:
        return NotImplemented
    return group_norm(x, x.shape[1], weight, bias, eps)


def variance(
    x: Tensor,
    dim: list[int] | None = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Any:
    """Decompose a variance into the mean of squared differences from the mean."""
    count = math.prod(x.shape[axis] for axis in dim or ())
    less = (1 if correction is None else correction) if unbiased else 0
    if not is_static(x.shape) or not dim or count <= less:
        return NotImplemented
    centered = x - x.mean(dim, True)
    found = (centered * centered).mean(dim, keepdim)
    return found * (count / (count - less)) if less else found


def deviation(x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Decompose a standard deviation into the square root of the variance."""
    found = variance(x, *args, **kwargs)
    return found if found is NotImplemented else found.sqrt()


def rms_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Decompose RMS norm: divide by the root of the mean of squares."""
    mean = (x * x).mean(list(range(-len(shape), 0)), True)
    return _scaled(x, mean + (torch.finfo(torch.float32).eps if eps is None else eps), weight)


def vector_norm(
    x: Tensor,
    order: float = 2,
    dim: list[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """Decompose the 2-norm into the root of the sum of squares."""
    if order != 2 or not dim or dtype is not None:
        return NotImplemented
    return (x * x).sum(dim, keepdim).sqrt()


def prelu(x: Tensor, slope: Tensor) -> Any:
    """Decompose PReLU into a ReLU plus the slope times the negative part."""
    if x.dim() < 2:
        return NotImplemented
    below = x.clamp_max(0.0) * of_channels(slope, x)
    return x.relu() + below


def glu(x: Tensor, dim: int = -1) -> Any:
    """Decompose GLU: the first half of an axis times the sigmoid of the second half."""
    if not is_static((size := x.shape[dim],)):
        return NotImplemented
    first, second = (aten.slice.Tensor(x, dim, at, at + size // 2) for at in (0, size // 2))
    return first * second.sigmoid()


def log_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    """Decompose log-softmax of short rows; int8 is too coarse for the log of a long row's sum."""
    if not is_static((x.shape[dim],)) or x.shape[dim] > LONGEST_LOGARITHM:
        return NotImplemented
    below = x - x.amax([dim], True)
    return below - below.exp().sum([dim], True).log()


def where_number(condition: Tensor, x: Tensor, number: float) -> Any:
    """Decompose a choice, by a mask, between a tensor and a constant."""
    if not _is_real(x, number):
        return NotImplemented
    return torch.where(condition, x, torch.full((1,), number, dtype=x.dtype))


def masked_fill(x: Tensor, mask: Tensor, number: float) -> Any:
    """Decompose `masked_fill` into a choice between the constant and the tensor."""
    if not _is_real(x, number):
        return NotImplemented
    return torch.where(mask, torch.full((1,), number, dtype=x.dtype), x)


def _is_real(x: Tensor, number: Any) -> bool:
    """Whether a tensor has floats and a constant is finite, so that both can be quantized."""
    is_known = isinstance(number, int | float) and math.isfinite(number)
    return is_known and x.is_floating_point()


def _extreme(value: Callable[..., Tensor], place: Callable[..., Tensor]) -> Callable[..., Any]:
    """Return a function that computes an extremum and its index by one operator each."""

    def split(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        return value(x, [dim], keepdim), place(x, dim, keepdim)

    return split


QUANTIZABLE: Mapping[Any, Callable[..., Any]] = {
    **RESIZES,
    aten.layer_norm.default: layer_norm,
    aten.scaled_dot_product_attention.default: attention,
    aten.group_norm.default: group_norm,
    aten.instance_norm.default: instance_norm,
    aten.std.dim: deviation,
    aten.std.correction: deviation,
    aten.var.dim: variance,
    aten.var.correction: variance,
    aten.rms_norm.default: rms_norm,
    aten.linalg_vector_norm.default: vector_norm,
    aten.prelu.default: prelu,
    aten.glu.default: glu,
    aten.log_softmax.int: log_softmax,
    aten.where.ScalarOther: where_number,
    aten.masked_fill.Scalar: masked_fill,
    aten.max.dim: _extreme(torch.amax, torch.argmax),
    aten.min.dim: _extreme(torch.amin, torch.argmin),
}
"""Operator → its decomposition, which may return `NotImplemented`."""
