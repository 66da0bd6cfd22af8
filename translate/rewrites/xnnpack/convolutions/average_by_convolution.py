"""Averages of windows as a depthwise convolution, where XNNPACK's pooling would lose a NaN.

XNNPACK's average pooling limits its results to ±∞, and on some CPUs a NaN becomes −∞ by that. The
stock flow pools plain windows so; where padding is counted, or windows are fitted to a size, it has
no pooling, and a sum of products, which keeps every class, costs about as much.

Before:
    %y = aten.avg_pool2d.default(%x, [3, 3], [1, 1], [1, 1]) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
After:
    %0 = stepwell.weight <"average#000000000000"> "constant" : tensor<2x1x3x3xf32>
    %y = aten.convolution.default(%x, %0, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 2) : (tensor<1x2x4x4xf32>, tensor<2x1x3x3xf32>) -> tensor<1x2x4x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import f16, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.building import become, static_dims
from stepwell.translate.rewrites.xnnpack.floats.carry_nans import carries_nans
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_for_xnnpack
from stepwell.translate.rewrites.xnnpack.nodes.lower_pooling import edges

Pair = tuple[int, int]

TAPS = (3, 4, 9, 25)
"""Cells of a window for which XNNPACK has depthwise kernels of float32."""


@dataclass(frozen=True)
class Averages:
    """Averages over windows of an image; padding counts."""

    op: SchemaOp
    kernel: Pair
    stride: Pair
    padding: Pair
    divisor: int


@dataclass(frozen=True)
class AverageByConvolution(Rewrite[Averages]):
    """`avg_pool2d` with counted padding and `adaptive_avg_pool2d` to a depthwise convolution."""

    name: ClassVar[str] = "average-by-convolution"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.AvgPool2dDefault,
        aten.AdaptiveAvgPool2dDefault,
        aten._AdaptiveAvgPool2dDefault,
    )
    bound: ClassVar[Bound] = roundings("sums in another order")

    def match(self, op: SchemaOp, program: Program) -> Averages | Refusal | None:
        """Guards: images of known sizes, every window counts the same cells."""
        refusal = not_for_xnnpack(op)
        if refusal is not None:
            return refusal
        if element(op.results[0].type) == f16 and carries_nans(op.operands, program):
            return Refusal("on some CPUs a convolution of halves makes −∞ of a NaN")
        given, made = static_dims(op.operands[0]), static_dims(op.results[0])
        if given is None or made is None or len(given) != 4:
            return Refusal("the input is not a batch of images of known sizes")
        if not isinstance(op, aten.AvgPool2dDefault):
            return _adaptive(op, given, made)
        kernel = _pair(op.arg("kernel_size"))
        padding = _pair(op.arg("padding"))
        if any(padding) and not op.arg("count_include_pad"):
            return Refusal("windows at the edge count fewer cells")
        if any(edges(op, (0, 0))):
            return Refusal("windows hang over the edge, where fewer cells are counted")
        if refusal := filled_up(kernel):
            return refusal
        stride = _pair(op.arg("stride")) if op.arg("stride") else kernel
        divisor = op.arg("divisor_override") or prod(kernel)
        return Averages(op, kernel, stride, padding, divisor)

    def build(self, match: Averages, rw: Rewriter) -> None:
        """The constant of equal weights and the convolution."""
        x = match.op.operands[0]
        shape = static_dims(x)
        assert shape is not None
        dtype = torch_dtype(element(x.type))
        equal = torch.full((shape[1], 1, *match.kernel), 1.0 / match.divisor, dtype=dtype)
        weight = rw.constant(equal, "average")
        become(
            rw,
            match.op,
            aten.ConvolutionDefault,
            x,
            weight,
            None,
            list(match.stride),
            list(match.padding),
            [1, 1],
            False,
            [0, 0],
            shape[1],
        )


def _adaptive(
    op: SchemaOp, given: tuple[int, ...], made: tuple[int, ...]
) -> Averages | Refusal | None:
    """The windows of an adaptive average that all have one size."""
    (rows, columns), (out_rows, out_columns) = given[2:], made[2:]
    if (out_rows, out_columns) == (1, 1):
        return None  # Whole planes, which XNNPACK has a node for.
    if rows % out_rows or columns % out_columns:
        return Refusal(
            f"{rows}×{columns} become {out_rows}×{out_columns}, in windows of several sizes"
        )
    kernel = (rows // out_rows, columns // out_columns)
    if refusal := filled_up(kernel):
        return refusal
    return Averages(op, kernel, kernel, (0, 0), prod(kernel))


def filled_up(kernel: Pair) -> Refusal | None:
    """The window has as many cells as XNNPACK's kernels take at once.

    Any other is filled up with weights of zero, and ∞ beside the window makes it NaN.
    """
    if prod(kernel) not in TAPS:
        return Refusal(f"XNNPACK fills a window of {prod(kernel)} cells up, with others beside it")
    return None


def _pair(numbers: list[int]) -> Pair:
    """Down and across; one number says both."""
    return (numbers[0], numbers[-1])
