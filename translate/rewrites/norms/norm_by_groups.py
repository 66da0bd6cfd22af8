"""Statistics of a batch or of each image: `group_norm`, each channel a group.

Before:
    %y = aten.instance_norm.default(%x, none, none, none, none, true, 0.1, 1.0e-05, false) : (tensor<2x3x4x4xf32>) -> tensor<2x3x4x4xf32>
After:
    %y = aten.group_norm.default(%x, 3, none, none, 1.0e-05) : (tensor<2x3x4x4xf32>) -> tensor<2x3x4x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.building import permute, put, static_dims, view


@dataclass(frozen=True)
class Statistics:
    """A norm whose mean and variance are the input's own."""

    op: SchemaOp
    shape: tuple[int, ...]


@dataclass(frozen=True)
class NormByGroups(Rewrite[Statistics]):
    """`instance_norm`, and batch norms that normalise by their batch, to `group_norm`."""

    name: ClassVar[str] = "norm-by-groups-to-tosa"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.InstanceNormDefault,
        aten._NativeBatchNormLegitNoStats,
        aten.NativeBatchNormDefault,
    )
    bound: ClassVar[Bound] = roundings("sums in another order")

    def match(self, op: SchemaOp, program: Program) -> Statistics | Refusal | None:
        """The input's own statistics, which nobody else reads; known sizes."""
        stated = "use_input_stats" if isinstance(op, aten.InstanceNormDefault) else "training"
        if not op.arg(stated):
            return None
        shape = static_dims(op.operands[0])
        if shape is None:
            return Refusal("the shape is symbolic")
        if prod(shape[2:]) * (1 if isinstance(op, aten.InstanceNormDefault) else shape[0]) == 1:
            return Refusal("a channel has one element, whose deviation is rounding alone")
        if not op.arg("eps") > 0:
            return Refusal(f"eps is {op.arg('eps')}, so that a constant channel divides by nothing")
        if any(saved.uses for saved in op.results[1:]):
            return Refusal("the mean or deviation that it saves for training is used")
        return Statistics(op, shape)

    def build(self, match: Statistics, rw: Rewriter) -> None:
        """One group a channel; the images of a batch beside each other."""
        op, shape = match.op, match.shape
        x, channels = op.operands[0], shape[1]
        batched = shape[0] > 1 and not isinstance(op, aten.InstanceNormDefault)
        order = (1, 0, *range(2, len(shape)))
        if batched:
            x = view(rw, permute(rw, x, order), (1, *(shape[i] for i in order)))
        arguments = (channels, op.arg("weight"), op.arg("bias"), op.arg("eps"))
        y = put(rw, aten.GroupNormDefault, x, *arguments)
        if batched:
            y = permute(rw, view(rw, y, [shape[i] for i in order]), order)
        rw.replace_value(op.results[0], y)
        rw.erase(op)
