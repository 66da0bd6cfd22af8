"""Clamps and relus: into the node that makes the value if it can clamp its output, else a node.

Before:
    %y = aten.relu.default(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
After:
    %y = xnnpack.clamp(%x, output_min=0.0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.numerics import FLUSHED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.xnnpack.guards import not_for_xnnpack


@dataclass(frozen=True)
class Range:
    """A clamp to `low`…`high`; None is unbounded."""

    op: SchemaOp
    low: float | None
    high: float | None


@dataclass(frozen=True)
class LowerClamp(Rewrite[Range]):
    """`aten.clamp`, `relu`, `relu6`, `hardtanh` to `xnnpack.clamp`."""

    name: ClassVar[str] = "lower-clamp"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.ClampDefault,
        aten.ReluDefault,
        aten.Relu6Default,
        aten.HardtanhDefault,
    )
    deviation: ClassVar[Deviation | None] = FLUSHED

    def match(self, op: SchemaOp, program: Program) -> Range | Refusal | None:
        """Guards: float elements, constant bounds in order."""
        refusal = not_for_xnnpack(op)
        if refusal is not None:
            return refusal
        if isinstance(op, aten.ReluDefault):
            return Range(op, 0.0, None)
        if isinstance(op, aten.Relu6Default):
            return Range(op, 0.0, 6.0)
        names = ("min", "max") if isinstance(op, aten.ClampDefault) else ("min_val", "max_val")
        low, high = (None if (at := op.arg(name)) is None else single(at) for name in names)
        if not (-math.inf if low is None else low) < (math.inf if high is None else high):
            return Refusal(f"the lower bound {low} is not below the upper bound {high}")
        return Range(op, low, high)

    def build(self, match: Range, rw: Rewriter) -> None:
        """A clamp node."""
        new = xnnpack.Clamp.make(
            match.op.operands[0],
            result=match.op.results[0].type,
            output_min=match.low,
            output_max=match.high,
        )
        rw.insert(new)
        rw.replace(match.op, [new.output])


def single(number: float) -> float:
    """The nearest number of float32, in which XNNPACK keeps and compares bounds."""
    return torch.tensor(number, dtype=torch.float32).item()


@dataclass(frozen=True)
class ClampedNode:
    """A clamp that is the only reader of a node which can clamp its own output."""

    clamp: XnnpackOp
    node: XnnpackOp


@dataclass(frozen=True)
class FuseClamp(Rewrite[ClampedNode]):
    """A clamp behind a node becomes the node's output range."""

    name: ClassVar[str] = "fuse-clamp"
    anchors: ClassVar[tuple[type[Operation], ...]] = (xnnpack.Clamp,)

    def match(self, op: XnnpackOp, program: Program) -> ClampedNode | Refusal | None:
        """Guards: the node has an output range that is not set, and no other reader."""
        node = op.operands[0].owner
        if not isinstance(node, XnnpackOp):
            return None
        if "output_min" not in node.get_irdl_definition().properties:
            return None
        if node.output_range is not None:
            return Refusal(f"{node.name} clamps its output already")
        if not node.output.has_one_use():
            return Refusal(f"{node.name} is read without the clamp too")
        if node.output.type != op.output.type:
            return Refusal("the clamp also changes the type")
        return ClampedNode(op, node)

    def build(self, match: ClampedNode, rw: Rewriter) -> None:
        """Set the range in place."""
        for name in ("output_min", "output_max"):
            if name in match.clamp.properties:
                match.node.properties[name] = match.clamp.properties[name]
        match.node.output.name_hint = match.clamp.output.name_hint
        rw.replace(match.clamp, [match.node.output])
        rw.changed(match.node)
