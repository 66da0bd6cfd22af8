"""Random numbers of various distributions and shapes, from the two random kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def rand_like(x: Tensor, **given: Any) -> Tensor:
    """Draw uniform numbers in [0, 1), in the shape of a tensor."""
    return torch.rand(x.shape).to(given.get("dtype") or x.dtype)


def randn_like(x: Tensor, **given: Any) -> Tensor:
    """Draw standard normal numbers, in the shape of a tensor."""
    return torch.randn(x.shape).to(given.get("dtype") or x.dtype)


def _without_generator(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def drawn(
        size: Any, *, generator: Any = None, dtype: torch.dtype | None = None, **_: Any
    ) -> Tensor:
        return draw(size).to(dtype or torch.float32)

    return drawn


def normal(mean: Any, std: Any = 1.0, *, generator: Any = None) -> Tensor:
    """Draw normal numbers of a stated mean and standard deviation."""
    shape = torch.broadcast_shapes(
        *(v.shape for v in (mean, std) if isinstance(v, torch.Tensor)),
    )
    return torch.randn(shape) * std + mean


def normal_over(x: Tensor, mean: float = 0, std: float = 1, *, generator: Any = None) -> Tensor:
    """Draw normal numbers in the shape of a tensor."""
    return (torch.randn(x.shape) * std + mean).to(x.dtype)


def uniform(x: Tensor, low: float = 0, high: float = 1, *, generator: Any = None) -> Tensor:
    """Draw uniform numbers between `low` and `high`, in the shape of a tensor."""
    return (torch.rand(x.shape) * (high - low) + low).to(x.dtype)


def multinomial(
    x: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> Tensor:
    """Sample the indices of the largest log-weights plus Gumbel noise; anew for each sample if
    replaced.
    """

    def raced(shape: Any) -> Tensor:
        return torch.log(x) - torch.log(-torch.log(torch.rand(shape)))

    if not replacement:
        return torch.topk(raced(x.shape), num_samples)[1]
    runs = [torch.argmax(raced(x.shape), -1, keepdim=True) for _ in range(num_samples)]
    return torch.cat(runs, -1)


def dropout(x: Tensor, p: float, train: bool) -> Any:
    """Set some elements to zero and scale the others up."""
    if not train or p == 0:
        return x.clone()
    return _kept(x, x.shape, p)


def feature_dropout(x: Tensor, p: float, train: bool) -> Any:
    """Apply `dropout` to whole channels."""
    if not train or p == 0:
        return x.clone()
    return _kept(x, (*x.shape[:2], *(1,) * (x.dim() - 2)), p)


def _kept(x: Tensor, shape: Any, p: float) -> Any:
    if p == 1:
        return torch.zeros_like(x)
    return x * torch.ge(torch.rand(shape), p).to(x.dtype) / (1 - p)


def alpha_dropout(x: Tensor, p: float, train: bool) -> Any:
    """Apply the dropout that preserves the mean and deviation of SELU's outputs."""
    return _alpha(x, x.shape, p, train)


def feature_alpha_dropout(x: Tensor, p: float, train: bool) -> Any:
    """Apply `alpha_dropout` to whole channels."""
    return _alpha(x, (*x.shape[:2], *(1,) * (x.dim() - 2)), p, train)


ALPHA = 1.7580993408473766
"""The negated limit of SELU for -∞."""


def _alpha(x: Tensor, shape: Any, p: float, train: bool) -> Any:
    if not train or p == 0:
        return x.clone()
    if p == 1:
        return torch.zeros_like(x)
    scale = ((ALPHA * ALPHA * p + 1) * (1 - p)) ** -0.5
    keeps = torch.ge(torch.rand(shape), p).to(x.dtype)
    return (x * keeps + (keeps - 1) * ALPHA) * scale + ALPHA * p * scale


def rrelu(
    x: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    """Draw the negative slope at random in training; use the mean slope otherwise."""
    if not training:
        return torch.nn.functional.leaky_relu(x, (lower + upper) / 2)
    slopes = torch.rand(x.shape) * (upper - lower) + lower
    return torch.where(torch.gt(x, 0), x, x * slopes.to(x.dtype))


def randint(low: int, high: int, size: Any, **given: Any) -> Tensor:
    """Draw integers in [low, high)."""
    drawn = torch.floor(torch.rand(size) * (high - low)) + low
    return drawn.to(given.get("dtype") or torch.int64)


def randint_like(x: Tensor, high: int, **given: Any) -> Tensor:
    """Draw integers in [0, high), in the shape of a tensor."""
    return randint(0, high, x.shape, dtype=given.get("dtype") or x.dtype)


def randint_like_between(x: Tensor, low: int, high: int, **given: Any) -> Tensor:
    """Draw integers in [low, high), in the shape of a tensor."""
    return randint(low, high, x.shape, dtype=given.get("dtype") or x.dtype)


DRAWS: dict[Any, Callable[..., Any]] = {
    aten.rand_like.default: rand_like,
    aten.randn_like.default: randn_like,
    aten.rand.generator: _without_generator(torch.rand),
    aten.randn.generator: _without_generator(torch.randn),
    aten.normal.Tensor_Tensor: normal,
    aten.normal.Tensor_float: normal,
    aten.normal.float_Tensor: normal,
    aten.normal_functional.default: normal_over,
    aten.uniform.default: uniform,
    aten.multinomial.default: multinomial,
    aten.dropout.default: dropout,
    aten.feature_dropout.default: feature_dropout,
    aten.alpha_dropout.default: alpha_dropout,
    aten.feature_alpha_dropout.default: feature_alpha_dropout,
    aten.rrelu.default: rrelu,
    aten.randint_like.default: randint_like,
    aten.randint_like.low_dtype: randint_like_between,
}
"""Operator → its decomposition."""
