"""Pooling in windows of one element that skips elements is a slice with a step.

Feature pyramids end in `max_pool2d(x, 1, stride=2)`, and attention that halves its queries begins
with `avg_pool2d(x, 1, stride=2)`. Not every version of XNNPACK pools windows of one element, and
what a slice with a step becomes runs in the delegate.

Before:
    %y = aten.max_pool2d.default(%x, [1, 1], [2, 1]) : (tensor<1x2x5x4xf32>) -> tensor<1x2x3x4xf32>
After:
    %y = aten.slice.Tensor(%x, 2, 0, 5, 2) : (tensor<1x2x5x4xf32>) -> tensor<1x2x3x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element, tensor
from stepwell.translate.rewrites.building import emit, static_dims


@dataclass(frozen=True)
class UnitWindows:
    """Windows of one element, every `stride[i]`-th on the i-th of the last two axes."""

    op: SchemaOp
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class UnitPoolingToSlice(Rewrite[UnitWindows]):
    """`max_pool2d(x, 1, stride=s)` and `avg_pool2d(x, 1, stride=s)` to `x[..., ::s, ::s]`."""

    name: ClassVar[str] = "unit-pooling-to-slice"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.MaxPool2dDefault,
        aten.AvgPool2dDefault,
    )
    bound: ClassVar[Bound] = Bound(absolute=5e-324, reason="avg_pool2d adds to zero: −0 becomes +0")

    def match(self, op: SchemaOp, program: Program) -> UnitWindows | Refusal | None:
        """Guards: one element a window, some left out, a size that is known.

        Padding is at most half a window: none. A dilation has nothing to stand between.
        """
        if set(op.arg("kernel_size")) != {1}:
            return None
        shape = static_dims(op.operands[0])
        if shape is None:
            return Refusal("the image has a symbolic size")
        stride = tuple(op.arg("stride"))
        if set(stride) <= {1}:
            return None
        if isinstance(op, aten.AvgPool2dDefault) and op.arg("divisor_override") not in (None, 1):
            return Refusal("the element is divided by another number")
        return UnitWindows(op, shape, stride * 2 if len(stride) == 1 else stride)

    def build(self, match: UnitWindows, rw: Rewriter) -> None:
        """A slice for each axis that is stepped over."""
        value, sizes = match.op.operands[0], list(match.shape)
        for axis, step in enumerate(match.stride, len(sizes) - 2):
            if step == 1:
                continue
            size = sizes[axis]
            sizes[axis] = -(-size // step)
            made = tensor(sizes, element(value.type))
            cut = aten.SliceTensor.make(value, axis, 0, size, step, result_types=[made])
            value = emit(rw, cut)
        rw.replace(match.op, [value])
