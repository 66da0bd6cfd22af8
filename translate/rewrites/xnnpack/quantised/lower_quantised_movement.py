"""Moves int8 instead of the floats it stands for, where the program quantises them back alike.

PT2E annotates a flatten or a concatenation with one quantisation on both sides. A float movement
between other casts stays one: nothing is quantised that the program did not quantise.

Before:
    %x = quant.dcast %q : tensor<2x4x!quant.uniform<i8:f32, 0.5>> to tensor<2x4xf32>
    %v = aten.view.default(%x, [8]) : (tensor<2x4xf32>) -> tensor<8xf32>
    %r = quant.qcast %v : tensor<8xf32> to tensor<8x!quant.uniform<i8:f32, 0.5>>
After:
    %r = xnnpack.static_reshape(%q, new_shape=[8]) : (tensor<2x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<8x!quant.uniform<i8:f32, 0.5>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.quantised.recognise import deliver
from stepwell.translate.rewrites.building import axis
from stepwell.translate.rewrites.xnnpack.nodes.lower_shape import (
    reshape,
    slice_bounds,
    slice_sizes,
    transpose,
    unknown_sizes,
)
from stepwell.translate.rewrites.xnnpack.quantised.lower_quantised_elementwise import changes_scale
from stepwell.translate.rewrites.xnnpack.quantised.quantised import BetweenCasts, between_casts

MOVES = (aten.ViewDefault, aten.PermuteDefault, aten.SliceTensor, aten.CatDefault)


@dataclass(frozen=True)
class MovedIntegers:
    """A movement whose operands and result are quantised alike."""

    op: SchemaOp
    between: BetweenCasts


@dataclass(frozen=True)
class LowerQuantisedMovement(Rewrite[MovedIntegers]):
    """q(move(dq(x))) to XNNPACK's static nodes of int8, exactly."""

    name: ClassVar[str] = "lower-quantised-movement"
    anchors: ClassVar[tuple[type[Operation], ...]] = MOVES

    def match(self, op: SchemaOp, program: Program) -> MovedIntegers | Refusal | None:
        """Guards: one quantisation throughout, shapes that the nodes take."""
        count = len(op.operands) if isinstance(op, aten.CatDefault) else 1
        found = between_casts(op, op.operands[:count])
        if not isinstance(found, BetweenCasts):
            return found
        if found.limits:
            return Refusal("its result is clamped; XNNPACK's movements clamp nothing")
        if changes_scale(found):
            return Refusal(
                "the scale changes on the way, which takes a float movement between two casts"
            )
        refusal = unknown_sizes(op)
        if refusal is not None:
            return refusal
        if isinstance(op, aten.SliceTensor) and slice_bounds(op) is None:
            return Refusal("XNNPACK slices with step 1 and constant bounds")
        if isinstance(op, aten.CatDefault) and count not in xnnpack.CONCATENATES:
            return Refusal("XNNPACK concatenates two to five tensors")
        return MovedIntegers(op, found)

    def build(self, match: MovedIntegers, rw: Rewriter) -> None:
        """The node of the movement's kind."""
        deliver(rw, match.between.uses, _moved(match, rw))


def _moved(match: MovedIntegers, rw: Rewriter) -> SSAValue:
    op, sources, made = match.op, match.between.sources, match.between.made.type
    rank = len(dims(made))
    if isinstance(op, aten.ViewDefault):
        return reshape(rw, sources[0], dims(made))
    if isinstance(op, aten.PermuteDefault):
        return transpose(rw, sources[0], [axis(d, rank) for d in op.arg("dims")])
    if isinstance(op, aten.CatDefault):
        node = xnnpack.CONCATENATES[len(sources)].make(*sources, axis=axis(op.arg("dim"), rank))
        return rw.insert(node).results[0]
    bounds = slice_bounds(op)
    assert bounds is not None
    at, start = bounds
    offsets = [start if index == at else 0 for index in range(rank)]
    node = xnnpack.StaticSlice.make(
        sources[0], result=made, offsets=offsets, sizes=slice_sizes(dims(made))
    )
    return rw.insert(node).results[0]
