"""Decomposition of resizes and adaptive pools into constant layers, which PT2E annotates.

CMSIS-NN has these layers. Bilinear upsampling by a whole factor is a depthwise convolution that
computes the cells between four neighbors, and a pixel shuffle. Any other resize that mixes rows and
columns by independent weights (linear, bicubic, averages of uneven windows) is a product with a
matrix along each axis: the operator's results for the unit vectors. A maximum of uneven windows is
a maximum of slices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

from stepwell.translate.pt2e.graph_writing import GraphWriter

aten = torch.ops.aten


def bilinear(model: GraphModule, node: Node) -> None:
    """Decompose to a convolution and a pixel shuffle for one whole factor, else two matrices."""
    x = cast(Node, node.args[0])
    sides, made = x.meta["val"].shape, node.meta["val"].shape
    if not all(isinstance(size, int) for size in (*sides, *made)):
        return
    factor, rest = divmod(made[2], sides[2])
    _, _, aligns, *scales = cast("tuple[Any, ...]", node.args)
    is_whole = not rest and factor > 1 and made[3] == factor * sides[3]
    if not is_whole or aligns or scales not in ([], [None], [[factor, factor]]):
        mixed(model, node)
        return
    write, channels = GraphWriter(model, node), sides[1]
    for axis in (2, 3):
        ends = [write.call(aten.slice.Tensor, x, axis, at, end)
                for at, end in ((0, 1), (sides[axis] - 1, sides[axis]))]  # fmt: skip
        x = write.call(aten.cat.default, [ends[0], x, ends[1]], axis)
    away = (torch.arange(factor) + 0.5) / factor - 0.5
    line = torch.stack([(-away).clamp_min(0), 1 - away.abs(), away.clamp_min(0)], 1)
    cells = torch.einsum("ia,jb->ijab", line, line).reshape(-1, 1, 3, 3).repeat(channels, 1, 1, 1)
    filter_ = write.constant(f"stepwell_{node.name}_between", cells.contiguous())
    ones = [1, 1]
    shares = write.call(aten.conv2d.default, x, filter_, None, ones, [0, 0], ones, channels)
    write.replace(write.call(aten.pixel_shuffle.default, shares, factor))


def mixed(model: GraphModule, node: Node) -> None:
    """Decompose to a matrix along each axis after the channels that the operator changes."""
    x, operator = cast(Node, node.args[0]), cast(Callable[..., torch.Tensor], node.target)
    sides, made = x.meta["val"].shape, node.meta["val"].shape
    if not all(isinstance(size, int) for size in (*sides, *made)):
        return
    leading, rank = len(sides) - _spatial(operator), len(sides)
    if operator is aten.adaptive_avg_pool2d.default and _divides(sides[leading:], made[leading:]):
        return  # An average pool.
    write = GraphWriter(model, node)
    for at in range(leading, rank):
        if operator is not aten.adaptive_avg_pool2d.default or sides[at] != made[at]:
            matrix = _of_unit_vectors(operator, node, at - leading, sides[at], made[at])
            name = f"stepwell_{node.name}_{at}"
            x = write.call(aten.transpose.int, x, at, rank - 1) if at != rank - 1 else x
            x = write.call(aten.linear.default, x, write.constant(name, matrix))
            x = write.call(aten.transpose.int, x, at, rank - 1) if at != rank - 1 else x
    write.replace(x)


def _spatial(operator: Any) -> int:
    return 1 if "1d" in str(operator) else 2


def _divides(sides: Any, made: Any) -> bool:
    return not any(size % cells for size, cells in zip(sides, made, strict=True))


def _of_unit_vectors(
    operator: Callable[..., torch.Tensor], node: Node, axis: int, size: int, made: int
) -> torch.Tensor:
    """Return the weights of cells along an axis: `[made, size]`."""
    count = _spatial(operator)
    unit = torch.eye(size).reshape(1, size, *(size if at == axis else 1 for at in range(count)))
    sizes = [made if at == axis else 1 for at in range(count)]
    if operator is aten.adaptive_avg_pool2d.default:
        return operator(unit, sizes).reshape(size, made).t().contiguous()
    aligns = bool(node.args[2])
    scales = cast("list[float] | None", node.args[3] if len(node.args) > 3 else None)
    if scales is None:
        found = operator(unit, sizes, aligns, None)
    else:
        found = operator(
            unit, None, aligns, [s if at == axis else 1.0 for at, s in enumerate(scales)]
        )
    return found.reshape(size, made).t().contiguous()


def adaptive_maximum(model: GraphModule, node: Node) -> None:
    """Decompose to a maximum pool for even windows, else the maximum of slices along each axis."""
    x = cast(Node, node.args[0])
    values = [user for user in node.users if user.args[1] == 0]
    if len(values) != len(node.users) and any(
        user.users for user in node.users if user not in values
    ):
        return  # The indices of the maxima are used.
    sides, sizes = x.meta["val"].shape[-2:], node.meta["val"][0].shape[-2:]
    if not all(isinstance(size, int) for size in (*sides, *sizes)):
        return
    write = GraphWriter(model, node)
    if _divides(sides, sizes):
        window = [size // cells for size, cells in zip(sides, sizes, strict=True)]
        x = write.call(aten.max_pool2d.default, x, window, window)
    else:
        for axis, size, cells in zip((-2, -1), sides, sizes, strict=True):
            spans = [(at * size // cells, -(-(at + 1) * size // cells)) for at in range(cells)]
            parts = [write.call(aten.slice.Tensor, x, axis, *span) for span in spans]
            most = [write.call(aten.amax.default, part, [axis], True) for part in parts]
            x = write.call(aten.cat.default, most, axis)
    write.replace_results([x, x])


RESIZES = {
    aten.upsample_bilinear2d.vec: bilinear,
    aten.upsample_linear1d.vec: mixed,
    aten.upsample_bicubic2d.vec: mixed,
    aten.adaptive_avg_pool2d.default: mixed,
    aten.adaptive_max_pool2d.default: adaptive_maximum,
}
"""Operator → its decomposition, which may not apply."""
