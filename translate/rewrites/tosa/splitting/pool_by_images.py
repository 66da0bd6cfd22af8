"""Pools of lines, of volumes, and of images without a batch, as pools of images.

A maximum over a box is one over planes, then one over depths, and so is an average: what it divides
by is the product of the axes' counts, whether padding counts or not.

Before:
    %y = aten.max_pool3d.default(%x, [2, 2, 2]) : (tensor<1x2x4x6x6xf32>) -> tensor<1x2x2x3x3xf32>
After:
    %0 = aten.view.default(%x, [1, 8, 6, 6]) : (tensor<1x2x4x6x6xf32>) -> tensor<1x8x6x6xf32>
    %1 = aten.max_pool2d.default(%0, [2, 2], [2, 2], [0, 0], [1, 1], false) : (tensor<1x8x6x6xf32>) -> tensor<1x8x3x3xf32>
    %2 = aten.view.default(%1, [1, 2, 4, 9]) : (tensor<1x8x3x3xf32>) -> tensor<1x2x4x9xf32>
    %3 = aten.max_pool2d.default(%2, [2, 1], [2, 1], [0, 0], [1, 1], false) : (tensor<1x2x4x9xf32>) -> tensor<1x2x2x9xf32>
    %y = aten.view.default(%3, [1, 2, 2, 3, 3]) : (tensor<1x2x2x9xf32>) -> tensor<1x2x2x3x3xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element, tensor
from stepwell.translate.rewrites.building import emit, static_dims, view
from stepwell.translate.rewrites.spelling.maxima import reads_their_indices

_AVERAGES = (aten.AvgPool3dDefault, aten.AvgPool2dDefault, aten.AvgPool1dDefault)
_LINES = (aten.MaxPool1dDefault, aten.AvgPool1dDefault)
_IMAGES = (aten.MaxPool2dDefault, aten.AvgPool2dDefault)


@dataclass(frozen=True)
class Pool:
    """A pool and the shape of what it reads, with a batch."""

    op: SchemaOp
    shape: tuple[int, ...]
    made: tuple[int, ...]


@dataclass(frozen=True)
class PoolByImages(Rewrite[Pool]):
    """`max_pool3d`, `avg_pool3d`; `max_pool2d`, `avg_pool2d` of one image; those of lines."""

    name: ClassVar[str] = "pool-by-images-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.MaxPool3dDefault,
        aten.MaxPool3dWithIndicesDefault,
        aten.MaxPool2dDefault,
        aten.MaxPool1dDefault,
        *_AVERAGES,
    )
    bound: ClassVar[Bound] = roundings("an average of averages rounds twice")

    def match(self, op: SchemaOp, program: Program) -> Pool | Refusal | None:
        """A volume, or an image without a batch, of known sizes; nobody reads places."""
        held, made = static_dims(op.operands[0]), static_dims(op.results[0])
        if held is None:
            return Refusal("the shape is symbolic")
        assert made is not None, "of known sizes and numbers"
        if refusal := reads_their_indices(op):
            return refusal
        spatial = _spatial(op)
        if len(held) == 4 and spatial == 2:
            return None
        if "divisor_override" in op.SCHEMA.by_name and op.arg("divisor_override") is not None:
            return Refusal("divisor_override is set; AVG_POOL2D divides by the number of elements")
        batch = (1,) if len(held) == spatial + 1 else ()
        return Pool(op, (*batch, *held), (*batch, *made))

    def build(self, match: Pool, rw: Rewriter) -> None:
        """Views, the planes, the depths."""
        op, (n, channels, *held), (_, _, *made) = match.op, match.shape, match.made
        x = op.operands[0]
        if len(held) == 1:
            x = view(rw, x, (n, channels, 1, *held))
            x = _pooled(op, x, (None, 0), (1, *made), rw)
        elif len(held) == 2:
            x = _pooled(op, view(rw, x, match.shape), range(2), made, rw)
        else:
            depth, plane = held[0], made[1:]
            x = view(rw, x, (n, channels * depth, *held[1:]))
            x = _pooled(op, x, (1, 2), plane, rw)
            x = view(rw, x, (n, channels, depth, prod(plane)))
            x = _pooled(op, x, (0, None), (made[0], prod(plane)), rw)
        result = op.results[0]
        rw.replace_value(result, view(rw, x, static_dims(result) or ()))
        rw.erase(op)


def _spatial(op: SchemaOp) -> int:
    """How many axes a pool runs over."""
    return 1 if isinstance(op, _LINES) else 2 if isinstance(op, _IMAGES) else 3


def _pooled(
    op: SchemaOp,
    x: SSAValue,
    axes: Sequence[int | None],
    made: Sequence[int],
    rw: Rewriter,
) -> SSAValue:
    """The pool over two axes of an image; None is an axis that is left alone."""
    spatial = _spatial(op)

    def numbers(name: str, alone: int) -> list[int]:
        given = list(op.arg(name) or op.arg("kernel_size"))
        given = given * spatial if len(given) == 1 else given
        return [alone if axis is None else given[axis] for axis in axes]

    kernel, stride, padding = numbers("kernel_size", 1), numbers("stride", 1), numbers("padding", 0)
    shape = static_dims(x)
    assert shape is not None, "of a view to numbers"
    batch, channels = shape[:2]
    result = tensor((batch, channels, *made), element(x.type))
    rounded_up = bool(op.arg("ceil_mode"))
    if isinstance(op, _AVERAGES):
        counted = bool(op.arg("count_include_pad"))
        lists = (kernel, stride, padding, rounded_up, counted)
        return emit(rw, aten.AvgPool2dDefault.make(x, *lists, result_types=[result]))
    lists = (kernel, stride, padding, numbers("dilation", 1), rounded_up)
    return emit(rw, aten.MaxPool2dDefault.make(x, *lists, result_types=[result]))
