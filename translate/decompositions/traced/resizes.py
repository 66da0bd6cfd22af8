"""Decompositions of resizes and adaptive pools into constant layers, which PT2E annotates.

CMSIS-NN has these layers. Bilinear upsampling by a whole factor is a depthwise convolution that
computes the cells between four neighbors, and a pixel shuffle. Any other resize that mixes rows and
columns by independent weights (linear, bicubic, averages of uneven windows) is a product with a
matrix along each axis: the operator's results for the unit vectors. A maximum of uneven windows is
a maximum of slices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d, linear, pixel_shuffle

aten = torch.ops.aten


def is_static(sizes: Sequence[Any]) -> bool:
    """Whether all sizes are numbers."""
    return all(isinstance(size, int) for size in sizes)


def bilinear(
    x: Tensor,
    size: Sequence[int] | None,
    aligns: bool,
    scales: Sequence[float] | None = None,
) -> Any:
    """Resize bilinearly: by a convolution and a pixel shuffle for one whole factor, else by a
    product with a matrix along each axis.
    """
    if not is_static(x.shape) or not is_static(size or ()):
        return NotImplemented
    made = _sizes(aten.upsample_bilinear2d.vec, x, size, aligns, scales)
    factor, rest = divmod(made[2], x.shape[2])
    is_whole = not rest and factor > 1 and made[3] == factor * x.shape[3]
    if not is_whole or aligns or scales not in (None, [factor, factor]):
        return _BY_MATRICES(x, size, aligns, scales)
    for axis in (2, 3):
        last = x.shape[axis]
        first, end = (aten.slice.Tensor(x, axis, at, at + 1) for at in (0, last - 1))
        x = torch.cat([first, x, end], axis)
    away = (torch.arange(factor) + 0.5) / factor - 0.5
    line = torch.stack([(-away).clamp_min(0), 1 - away.abs(), away.clamp_min(0)], 1)
    cells = torch.einsum("ia,jb->ijab", line, line).reshape(-1, 1, 3, 3)
    cells = cells.repeat(x.shape[1], 1, 1, 1).contiguous()
    return pixel_shuffle(conv2d(x, cells, None, [1, 1], [0, 0], [1, 1], x.shape[1]), factor)


def _sizes(operator: Callable[..., Tensor], x: Tensor, *arguments: Any) -> torch.Size:
    """Return the sizes of an operator's result."""
    return operator(torch.empty(x.shape, device="meta"), *arguments).shape


def by_matrices(operator: Callable[..., Tensor], axes: int) -> Callable[..., Any]:
    """Return a decomposition of a resize: a product with a constant matrix along each of the last
    axes.
    """
    is_pool = operator is aten.adaptive_avg_pool2d.default

    def computed(x: Tensor, size: Sequence[int] | None, *rest: Any) -> Any:
        if not is_static(x.shape) or not is_static(size or ()):
            return NotImplemented
        made, rank, leading = _sizes(operator, x, size, *rest), x.dim(), x.dim() - axes
        if is_pool and _divides(x.shape[leading:], made[leading:]):
            return NotImplemented  # An average pool.
        for at in range(leading, rank):
            if not is_pool or x.shape[at] != made[at]:
                matrix = _of_unit_vectors(at - leading, x.shape[at], made[at], *rest)
                x = x.transpose(at, rank - 1) if at != rank - 1 else x
                x = linear(x, matrix)
                x = x.transpose(at, rank - 1) if at != rank - 1 else x
        return x

    def _of_unit_vectors(axis: int, size: int, made: int, *rest: Any) -> Tensor:
        """Return the matrix `[made, size]` of a resize along one axis: its results for unit
        vectors.
        """
        unit = torch.eye(size).reshape(1, size, *(size if at == axis else 1 for at in range(axes)))
        sizes: list[int] | None = [made if at == axis else 1 for at in range(axes)]
        if rest:
            aligns, scales = (*rest, None)[:2]
            if scales is not None:
                sizes, scales = None, [s if at == axis else 1.0 for at, s in enumerate(scales)]
            rest = (aligns, scales)
        return operator(unit, sizes, *rest).reshape(size, made).t().contiguous()

    return computed


def _divides(sizes: Sequence[int], made: Sequence[int]) -> bool:
    return not any(size % cells for size, cells in zip(sizes, made, strict=True))


def adaptive_maximum(x: Tensor, sizes: Sequence[int]) -> Any:
    """Decompose an adaptive maximum pool: a maximum pool if windows are equal, else maxima of
    slices. The indices are None.
    """
    sides = x.shape[-2:]
    if not is_static((*sides, *sizes)):
        return NotImplemented
    if _divides(sides, sizes):
        window = [size // cells for size, cells in zip(sides, sizes, strict=True)]
        return aten.max_pool2d.default(x, window, window), None
    for axis, size, cells in zip((-2, -1), sides, sizes, strict=True):
        spans = [(at * size // cells, -(-(at + 1) * size // cells)) for at in range(cells)]
        parts = [aten.slice.Tensor(x, axis, *span) for span in spans]
        x = torch.cat([part.amax([axis], True) for part in parts], axis)
    return x, None


_BY_MATRICES = by_matrices(aten.upsample_bilinear2d.vec, 2)
RESIZES: Mapping[Any, Callable[..., Any]] = {
    aten.upsample_bilinear2d.vec: bilinear,
    aten.upsample_linear1d.vec: by_matrices(aten.upsample_linear1d.vec, 1),
    aten.upsample_bicubic2d.vec: by_matrices(aten.upsample_bicubic2d.vec, 2),
    aten.adaptive_avg_pool2d.default: by_matrices(aten.adaptive_avg_pool2d.default, 2),
    aten.adaptive_max_pool2d.default: adaptive_maximum,
}
"""Operator → its decomposition, which may return `NotImplemented`."""
