"""Spell adaptive poolings by ordinary ones where windows are equal.

To one element, an adaptive average is the mean of the spatial axes; to a size that divides the
input's, it is an average pool with kernel and stride of the quotient. Other sizes have windows of
several lengths and stay.

Before:
    %a = aten.adaptive_avg_pool2d.default(%x, [1, 1]) : (tensor<1x3x8x8xf32>) -> tensor<1x3x1x1xf32>
    %b = aten.adaptive_avg_pool2d.default(%x, [4, 2]) : (tensor<1x3x8x8xf32>) -> tensor<1x3x4x2xf32>
    func.return %a, %b : tensor<1x3x1x1xf32>, tensor<1x3x4x2xf32>
After:
    %a = aten.mean.dim(%x, [2, 3], true) : (tensor<1x3x8x8xf32>) -> tensor<1x3x1x1xf32>
    %b = aten.avg_pool2d.default(%x, [2, 4], [2, 4]) : (tensor<1x3x8x8xf32>) -> tensor<1x3x4x2xf32>
    func.return %a, %b : tensor<1x3x1x1xf32>, tensor<1x3x4x2xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.numerics import Deviation, loses_nans
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal
from stepwell.ir.types import dims
from stepwell.translate.rewrites.spelling.maxima import reads_their_indices
from stepwell.translate.rewrites.spelling.respelling import Respell, Respelled


@dataclass(frozen=True)
class AdaptivePoolToPool(Respell):
    """`adaptive_avg_pool`, `adaptive_max_pool2d` to `mean`, `amax`, `avg_pool2d`, `max_pool2d`."""

    name: ClassVar[str] = "adaptive-pool-to-pool"
    takes_empty: ClassVar[bool] = False
    bound: ClassVar[Bound] = roundings("the mean may be summed in another order")
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.AdaptiveAvgPool1dDefault,
        aten.AdaptiveAvgPool2dDefault,
        aten._AdaptiveAvgPool2dDefault,
        aten.AdaptiveAvgPool3dDefault,
        aten.AdaptiveMaxPool2dDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> Respelled | Refusal | None:
        """Guards: nobody reads indices; one window, or static windows of one size."""
        if refusal := reads_their_indices(op):
            return refusal
        value, result = op.operands[0], op.results[0]
        space = len(op.arg("output_size"))
        held = dims(value.type)
        is_max = isinstance(op, aten.AdaptiveMaxPool2dDefault)
        sizes = list(zip(held[-space:], dims(result.type)[-space:], strict=True))
        if all(after == 1 for _, after in sizes):
            over = list(range(len(held) - space, len(held)))
            form = aten.AmaxDefault if is_max else aten.MeanDim
            return Respelled(op, form, {"self": value, "dim": over, "keepdim": True})
        windows: list[int] = []
        for before, after in sizes:
            if not isinstance(before, int) or not isinstance(after, int):
                return Refusal("the spatial axes are symbolic")
            if after == 0 or before % after:
                return Refusal(f"{before} elements become {after}, in windows of several lengths")
            windows.append(before // after)
        if space != 2:
            return Refusal(
                f"it pools over {space} axes to more than one element; its forms have two"
            )
        form = aten.MaxPool2dDefault if is_max else aten.AvgPool2dDefault
        return Respelled(op, form, {"self": value, "kernel_size": windows, "stride": windows})

    def deviates(self, match: Respelled, program: Program) -> Deviation | None:
        """Pooling of an engine that may lose a NaN; averages have a form that does not."""
        if not loses_nans(program.context) or match.form is aten.MeanDim:
            return None
        if match.form is aten.MaxPool2dDefault:
            return Deviation("a NaN may be lost beside a number", accepted=True)
        if match.form is aten.AvgPool2dDefault:
            return Deviation("the average of a window with a NaN may be −∞")
        return None
