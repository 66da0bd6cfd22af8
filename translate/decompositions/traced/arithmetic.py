"""Decompositions of elementwise arithmetic: signs, hypotenuse, neighbors, powers of two."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def of_one_type(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return both operands in the element type to which PyTorch promotes them."""
    result_type = torch.result_type(a, b)
    return a.to(result_type), b.to(result_type)


def within(comparisons: int, most: int) -> None:
    """Raise an error if comparing all pairs of numbers takes more than `most` comparisons.

    Raises:
        NotImplementedError: the text is the reason for the refusal.
    """
    if comparisons > most:
        raise NotImplementedError(
            f"it is {comparisons} comparisons of numbers with each other, above {most}"
        )


def in_single(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Make a function of float32 accept integers and halves, which are computed in float32."""

    def computed(x: Tensor) -> Tensor:
        held = x.dtype if x.dtype.is_floating_point else torch.float32
        wide = held if held == torch.float64 else torch.float32
        return function(x.to(wide)).to(held)

    return computed


def signbit(x: Tensor) -> Any:
    """Return whether x is below zero or -0, whose inverse is negative. The sign of a NaN is
    ignored.
    """
    if not x.dtype.is_floating_point:
        return torch.zeros_like(x) if x.dtype == torch.bool else torch.lt(x, 0)
    return torch.logical_or(torch.lt(x, 0), torch.lt(torch.reciprocal(x), 0))


def fmin(a: Tensor, b: Tensor) -> Tensor:
    """Return the smaller number; if one operand is NaN, the other."""
    return _past_nan(torch.minimum, *of_one_type(a, b))


def fmax(a: Tensor, b: Tensor) -> Tensor:
    """Return the larger number; if one operand is NaN, the other."""
    return _past_nan(torch.maximum, *of_one_type(a, b))


def _past_nan(choose: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
    if not a.dtype.is_floating_point:
        return choose(a, b)
    a, b = torch.broadcast_tensors(a, b)
    return choose(torch.where(torch.isnan(a), b, a), torch.where(torch.isnan(b), a, b))


def hypot(a: Tensor, b: Tensor) -> Tensor:
    """Return `√(a² + b²)` as large · √(1 + (small / large)²), in which no square overflows."""
    a, b = (v.abs() for v in of_one_type(a, b))
    is_second = torch.gt(b, a)
    large, small = torch.where(is_second, b, a), torch.where(is_second, a, b)
    share = small / large
    length = large * torch.sqrt(share * share + 1)
    is_tiny = torch.lt(large, torch.finfo(large.dtype).tiny)  # A delegate flushes it to zero.
    length = torch.where(is_tiny, large + small, length)
    is_endless = torch.logical_or(torch.isinf(a), torch.isinf(b))
    return torch.where(is_endless, torch.full_like(length, math.inf), length)


def angle(x: Tensor) -> Tensor:
    """Return the angle of real numbers in the complex plane: π if negative, else 0; NaN is kept."""
    held = x if x.dtype.is_floating_point else x.to(torch.float32)
    turned = torch.where(torch.lt(held, 0), torch.full_like(held, math.pi), 0 * torch.sign(held))
    return torch.where(torch.isnan(held), held, turned)


def nextafter(a: Tensor, b: Tensor) -> Any:
    """Return the next number towards b: x plus a little more than half a unit in the last place.

    S. M. Rump et al., Computing predecessor and successor in rounding to nearest, 2009. If the unit
    in the last place of x is the smallest denormal number, that number is added.
    """
    if a.dtype != torch.float32 or b.dtype != a.dtype:
        return NotImplemented
    least, half = 2.0**-149, 2.0**-24
    a, b = torch.broadcast_tensors(a, b)
    scale = 2.0**30
    size = torch.abs(a)
    is_small = torch.lt(size, 2.0**-100)
    scaled = torch.where(is_small, size * scale, size)
    step = scaled * (half * (1 + 2 * half))
    outward = torch.where(is_small, (scaled + step) / scale, scaled + step)
    inward = torch.where(is_small, (scaled - step) / scale, scaled - step)
    is_tiny = torch.lt(size, 2.0**-125)
    outward = torch.where(is_tiny, size + least, outward)
    inward = torch.where(is_tiny, size - least, inward)
    inward = torch.where(torch.isinf(a), torch.full_like(a, torch.finfo(a.dtype).max), inward)
    is_outward = torch.where(torch.lt(a, 0), torch.lt(b, a), torch.gt(b, a))
    moved = torch.where(is_outward, outward, inward)
    is_negative = torch.where(torch.eq(a, 0), torch.lt(b, 0), torch.lt(a, 0))
    moved = torch.where(torch.eq(a, 0), torch.full_like(a, least), moved)
    moved = torch.where(is_negative, torch.neg(moved), moved)
    moved = torch.where(torch.isnan(a), a, torch.where(torch.isnan(b), b, moved))
    return torch.where(torch.eq(a, b), b, moved)


def sigmoid_backward(grad: Tensor, y: Tensor) -> Any:
    """Return `grad (1 - y) y`, in the order of PyTorch's kernel: y (1 - y) may overflow."""
    wide = torch.promote_types(grad.dtype, torch.float32)
    return (grad.to(wide) * (1 - y.to(wide)) * y.to(wide)).to(grad.dtype)


def tanh_backward(grad: Tensor, y: Tensor) -> Any:
    """Return `grad (1 - y²)`."""
    wide = torch.promote_types(grad.dtype, torch.float32)
    return (grad.to(wide) * (1 - y.to(wide) * y.to(wide))).to(grad.dtype)


@in_single
def exp2(x: Tensor) -> Tensor:
    """Return `2 ** x`."""
    return torch.pow(torch.full([], 2, dtype=x.dtype), x)


def addbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """Compute the sum of a batch's products as one product of concatenated rows and columns."""
    if not x.dtype.is_floating_point and any(isinstance(n, float) for n in (beta, alpha)):
        return NotImplemented
    rows = batch1.permute(1, 0, 2).reshape(batch1.shape[1], -1)
    product = torch.mm(rows, batch2.reshape(-1, batch2.shape[2]))
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product.expand(torch.broadcast_shapes(x.shape, product.shape))
    return product + (x if beta == 1 else x * beta)


def bilinear(first: Tensor, second: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute `x1ᵀ W y` per output: a linear layer of x1, products with x2, and a sum."""
    outputs, of_first, of_second = weight.shape
    flat = weight.permute(0, 2, 1).reshape(outputs * of_second, of_first)
    made = torch.nn.functional.linear(first, flat)
    made = made.reshape(*first.shape[:-1], outputs, of_second)
    summed = (made * second.unsqueeze(-2)).sum(-1)
    return summed if bias is None else summed + bias


def resize(x: Tensor, size: Any, *, memory_format: Any = None) -> Any:
    """Return the first elements in another shape; more elements than before are refused."""
    count = math.prod(size)
    if count > x.numel():
        return NotImplemented
    flat = x.reshape(-1)
    return (flat if count == x.numel() else flat.narrow(0, 0, count)).reshape(size)


def resize_as(x: Tensor, other: Tensor, *, memory_format: Any = None) -> Any:
    """Resize to the size of `other`, as `resize` does."""
    return resize(x, other.shape)


ARITHMETIC: dict[Any, Callable[..., Any]] = {
    aten.signbit.default: signbit,
    aten.fmin.default: fmin,
    aten.fmax.default: fmax,
    aten.hypot.default: hypot,
    torch.ops.prims.hypot.default: hypot,
    aten.angle.default: angle,
    aten.nextafter.default: nextafter,
    aten.exp2.default: exp2,
    torch.ops.prims.exp2.default: exp2,
    aten.sigmoid_backward.default: sigmoid_backward,
    aten.tanh_backward.default: tanh_backward,
    aten.addbmm.default: addbmm,
    aten.bilinear.default: bilinear,
    aten.resize.default: resize,
    aten.resize_as.default: resize_as,
}
"""Operator → its decomposition."""
