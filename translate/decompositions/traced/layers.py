"""Decompositions of layers: a loss with its projection, 3-D grid sampling, frexp, …."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def linear_cross_entropy(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
    allow_retain_graph: bool,
    compute_input_grad: bool,
    compute_linear_weight_grad: bool,
    compute_linear_bias_grad: bool,
) -> Any:
    """Compute the loss of a linear projection; chunk sizes and gradient options are ignored."""
    if compute_input_grad or compute_linear_weight_grad or compute_linear_bias_grad:
        return NotImplemented
    logits = torch.nn.functional.linear(x, linear_weight, linear_bias)
    loss = torch.nn.functional.cross_entropy(
        logits,
        target,
        weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )
    unread = (torch.full([0] * rank, 0, dtype=x.dtype) for rank in (x.dim(), 2, 1))
    return loss, *unread


def linear_cross_entropy_of_each(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
) -> Any:
    """Compute the cross-entropy loss of each row of a linear projection."""
    logits = torch.nn.functional.linear(x, linear_weight, linear_bias)
    return torch.nn.functional.cross_entropy(
        logits, target, weight, reduction="none", ignore_index=ignore_index
    )


BILINEAR, NEAREST = 0, 1
ZEROS, BORDER = 0, 1


def grid_sampler_3d(
    x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    """Gather and weight the eight neighbors of each sampling point, or gather the nearest."""
    if interpolation_mode not in (BILINEAR, NEAREST) or padding_mode not in (ZEROS, BORDER):
        return NotImplemented
    batch, channels, *sizes = x.shape
    flat = x.reshape(batch, channels, -1)
    places: list[Tensor] = []
    for axis, size in enumerate(reversed(sizes)):
        at = grid[..., axis]
        at = (at + 1) * ((size - 1) / 2) if align_corners else ((at + 1) * size - 1) / 2
        places.append(torch.clamp(at, 0, size - 1) if padding_mode == BORDER else at)
    places.reverse()
    if interpolation_mode == NEAREST:
        corners = [([torch.round(at) for at in places], None)]
    else:
        low = [torch.floor(at) for at in places]
        share = [at - start for at, start in zip(places, low, strict=True)]
        corners: list[tuple[list[Tensor], Tensor | None]] = []
        for steps in itertools.product((0, 1), repeat=3):
            corner = [start + step for start, step in zip(low, steps, strict=True)]
            parts = [one if step else 1 - one for one, step in zip(share, steps, strict=True)]
            corners.append((corner, parts[0] * parts[1] * parts[2]))
    total = None
    for corner, weight in corners:
        made = _at(flat, corner, sizes)
        made = made if weight is None else made * weight.unsqueeze(1)
        total = made if total is None else total + made
    return total


def _at(flat: Tensor, corner: list[Tensor], sizes: list[int]) -> Tensor:
    """Gather elements at indices; indices out of bounds give zero."""
    index, is_within = None, None
    for at, size in zip(corner, sizes, strict=True):
        inside = torch.logical_and(torch.ge(at, 0), torch.le(at, size - 1))
        is_within = inside if is_within is None else torch.logical_and(is_within, inside)
        place = torch.clamp(at, 0, size - 1).to(torch.int64)
        index = place if index is None else index * size + place
    assert index is not None
    assert is_within is not None
    batch, channels, _ = flat.shape
    row = index.reshape(batch, 1, -1).expand(batch, channels, -1)
    found = torch.gather(flat, 2, row).reshape(batch, channels, *index.shape[1:])
    return torch.where(is_within.unsqueeze(1), found, torch.zeros_like(found))


def upsample_nearest1d(
    x: Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None
) -> Any:
    """Repeat each element of a line of dynamic length; other lines use PyTorch's decomposition.

    PyTorch multiplies by the factor's reciprocal and rounds down, so a factor is refused if its
    reciprocal in single precision is too small.
    """
    whole = [f for f in scale_factors or () if f == int(f) and _single(1 / f) * f >= 1]
    if type(x.shape[-1]) is int or not whole:
        return aten.upsample_nearest1d.vec.decompose(x, output_size, scale_factors)
    return x.unsqueeze(-1).expand(*x.shape, int(whole[0])).flatten(-2)


def _single(number: float) -> float:
    return struct.unpack("<f", struct.pack("<f", number))[0]


def frexp(x: Tensor) -> Any:
    """Decompose numbers into mantissa and exponent: scale by 2^±64, 2^±32, …, each exactly."""
    if x.dtype != torch.float32:
        return NotImplemented
    is_number = torch.logical_and(torch.ne(x, 0), torch.lt(x.abs(), float("inf")))
    share = torch.where(is_number, x, torch.zeros_like(x))
    exponent = torch.zeros_like(x)
    for step in (64, 64, 32, 16, 8, 4, 2, 1, 1):
        is_large = torch.ge(share.abs(), 2.0 ** (step - 1))
        share = torch.where(is_large, share * 2.0**-step, share)
        exponent = torch.where(is_large, exponent + step, exponent)
    for step in (64, 64, 32, 16, 8, 4, 2, 1):
        is_small = torch.logical_and(torch.lt(share.abs(), 2.0**-step), torch.ne(share, 0))
        share = torch.where(is_small, share * 2.0**step, share)
        exponent = torch.where(is_small, exponent - step, exponent)
    return torch.where(is_number, share, x), exponent.to(torch.int32)


LAYERS: dict[Any, Callable[..., Any]] = {
    aten.grid_sampler_3d.default: grid_sampler_3d,
    aten.upsample_nearest1d.vec: upsample_nearest1d,
    aten.frexp.Tensor: frexp,
}
"""Operator → its decomposition."""
NAMED_LAYERS: dict[str, Callable[..., Any]] = {
    "torch_nn._linear_cross_entropy_batch_chunked.default": linear_cross_entropy,
    "torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default": (
        linear_cross_entropy_of_each
    ),
}
"""Operators of a library with a slow import. A program with one of them has imported it already."""
