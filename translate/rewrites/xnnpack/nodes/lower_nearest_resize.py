"""Nearest-neighbour enlargement by whole factors, as rows laid beside themselves.

XNNPACK resizes bilinearly only. Enlarged by a whole factor, each pixel stands several times in a
row, and each row several times: concatenations, which copy memory, with the channels last.

Before:
    %y = aten.upsample_nearest2d.default(%x, [8, 4]) : (tensor<1x3x4x4xf32>) -> tensor<1x3x8x4xf32>
After:
    %0 = xnnpack.static_transpose(%x, perm=[0, 2, 3, 1]) : (tensor<1x3x4x4xf32>) -> tensor<1x4x4x3xf32>
    %1 = xnnpack.static_reshape(%0, new_shape=[1, 4, 1, 12]) : (tensor<1x4x4x3xf32>) -> tensor<1x4x1x12xf32>
    %2 = xnnpack.concatenate2(%1, %1, axis=2) : (tensor<1x4x1x12xf32>, tensor<1x4x1x12xf32>) -> tensor<1x4x2x12xf32>
    %3 = xnnpack.static_reshape(%2, new_shape=[1, 8, 4, 3]) : (tensor<1x4x2x12xf32>) -> tensor<1x8x4x3xf32>
    %y = xnnpack.static_transpose(%3, perm=[0, 3, 1, 2]) : (tensor<1x8x4x3xf32>) -> tensor<1x3x8x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.building import static_dims
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_for_xnnpack
from stepwell.translate.rewrites.xnnpack.nodes.lower_pooling import stated_scale
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import (
    concatenate,
    reshape,
    to_nchw,
    to_nhwc,
)


@dataclass(frozen=True)
class Enlarged:
    """An image of which each pixel stands `factors` times, down and across."""

    op: SchemaOp
    factors: tuple[int, int]


@dataclass(frozen=True)
class LowerNearestResize(Rewrite[Enlarged]):
    """`aten.upsample_nearest2d` by whole factors to concatenations."""

    name: ClassVar[str] = "lower-nearest-resize"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.UpsampleNearest2dDefault,
        aten.UpsampleNearest2dVec,
    )

    def match(self, op: SchemaOp, program: Program) -> Enlarged | Refusal | None:
        """Guards: static float images; torch picks each pixel as often as every other."""
        refusal = not_for_xnnpack(op)
        if refusal is not None:
            return refusal
        given, made = static_dims(op.operands[0]), static_dims(op.results[0])
        if given is None:
            return Refusal("the size of the image is symbolic")
        assert made is not None, "of known sizes and numbers"
        down, across = given[2:], made[2:]
        if any(new % old for old, new in zip(down, across, strict=True)):
            return Refusal(f"{_size(down)} to {_size(across)} is no whole factor")
        for at in (0, 1):
            if not repeats_evenly(down[at], across[at], stated_scale(op, at)):
                return Refusal("torch rounds the places of some pixels to their neighbours")
        return Enlarged(op, (across[0] // down[0], across[1] // down[1]))

    def build(self, match: Enlarged, rw: Rewriter) -> None:
        """Channels last, pixels beside themselves, rows below themselves, channels second."""
        op = match.op
        value = to_nhwc(rw, op.operands[0])
        shape = static_dims(value)
        assert shape is not None
        batch, rows, columns, channels = shape
        down, across = match.factors
        value = _beside_itself(rw, value, (batch, rows * columns, 1, channels), across)
        columns *= across
        value = _beside_itself(rw, value, (batch, rows, 1, columns * channels), down)
        value = reshape(rw, value, (batch, rows * down, columns, channels))
        rw.replace(op, [to_nchw(rw, value, op.results[0].type)])


def _beside_itself(rw: Rewriter, value: SSAValue, shape: tuple[int, ...], factor: int) -> SSAValue:
    if factor == 1:
        return value
    return concatenate(rw, [reshape(rw, value, shape)] * factor, 2)


@cache
def repeats_evenly(size: int, new_size: int, scale: float | None) -> bool:
    """Whether torch, which rounds in f32, picks pixel `i // factor` for each i."""
    line = torch.arange(size, dtype=torch.float32).reshape(1, 1, 1, size)
    picked = torch.ops.aten.upsample_nearest2d.default(line, [1, new_size], None, scale)
    return bool(torch.equal(picked, line.repeat_interleave(new_size // size, 3)))


def _size(pair: tuple[int, ...]) -> str:
    return "×".join(map(str, pair))
