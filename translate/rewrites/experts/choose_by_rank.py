"""Legalization: decompose `topk` and the readers of its indices into arithmetic on ranks.

XNNPACK has no comparison. The difference of two numbers, scaled until it is 0 or beyond 1 and
clamped, states which is greater: `clamp((a − b) · 2ᵐ · 2¹²⁷, 0, 1)` is exactly 0 or 1. An element's
rank is the count of those that come before it; of equal elements the first comes first. Slot `s` of
the result is the element of rank `s`: a row that is one there and zero elsewhere, and a product
with it selects the element. To take few of many, the maximum is removed again and again
(`translate/rewrites/xnnpack/nodes/slots.py` has both forms).

Before:
    %v, %i = aten.topk.default(%x, 2) : (tensor<3x4xf32>) -> (tensor<3x2xf32>, tensor<3x2xi64>)
    %g = aten.gather.default(%t, 1, %i) : (tensor<3x4xf32>, tensor<3x2xi64>) -> tensor<3x2xf32>
    func.return %v, %g : tensor<3x2xf32>, tensor<3x2xf32>
After:
    %0 = aten.mul.Scalar(%x, 2.305843009213694e+18) : (tensor<3x4xf32>) -> tensor<3x4xf32>
    %1 = aten.view.default(%0, [3, 4, 1]) : (tensor<3x4xf32>) -> tensor<3x4x1xf32>
    %2 = aten.view.default(%0, [3, 1, 4]) : (tensor<3x4xf32>) -> tensor<3x1x4xf32>
    %3 = aten.sub.Tensor(%2, %1) : (tensor<3x1x4xf32>, tensor<3x4x1xf32>) -> tensor<3x4x4xf32>
    %4 = aten.mul.Tensor(%3, dense<[[0.0, 1.7014118346046923e+38, 1.7014118346046923e+38, 1.7014118346046923e+38], [-1.7014118346046923e+38, 0.0, 1.7014118346046923e+38, 1.7014118346046923e+38], [-1.7014118346046923e+38, -1.7014118346046923e+38, 0.0, 1.7014118346046923e+38], [-1.7014118346046923e+38, -1.7014118346046923e+38, -1.7014118346046923e+38, 0.0]]>) : (tensor<3x4x4xf32>, tensor<4x4xf32>) -> tensor<3x4x4xf32>
    %5 = aten.clamp.default(%4, 0.0, 1.0) : (tensor<3x4x4xf32>) -> tensor<3x4x4xf32>
    %6 = aten.mul.Tensor(%5, dense<[[0.0, 1.0, 1.0, 1.0], [-1.0, 0.0, 1.0, 1.0], [-1.0, -1.0, 0.0, 1.0], [-1.0, -1.0, -1.0, 0.0]]>) : (tensor<3x4x4xf32>, tensor<4x4xf32>) -> tensor<3x4x4xf32>
    %7 = aten.sum.dim_IntList(%6, [2], true) : (tensor<3x4x4xf32>) -> tensor<3x4x1xf32>
    %8 = aten.view.default(%7, [3, 1, 4]) : (tensor<3x4x1xf32>) -> tensor<3x1x4xf32>
    %9 = aten.add.Tensor(%8, dense<[[0.0, 1.0, 2.0, 3.0], [-1.0, 0.0, 1.0, 2.0]]>) : (tensor<3x1x4xf32>, tensor<2x4xf32>) -> tensor<3x2x4xf32>
    %10 = aten.mul.Tensor(%9, %9) : (tensor<3x2x4xf32>, tensor<3x2x4xf32>) -> tensor<3x2x4xf32>
    %11 = aten.sub.Tensor(dense<1.0>, %10) : (tensor<1xf32>, tensor<3x2x4xf32>) -> tensor<3x2x4xf32>
    %12 = aten.relu.default(%11) : (tensor<3x2x4xf32>) -> tensor<3x2x4xf32>
    %13 = aten.view.default(%x, [3, 4, 1]) : (tensor<3x4xf32>) -> tensor<3x4x1xf32>
    %14 = aten.bmm.default(%12, %13) : (tensor<3x2x4xf32>, tensor<3x4x1xf32>) -> tensor<3x2x1xf32>
    %v = aten.view.default(%14, [3, 2]) : (tensor<3x2x1xf32>) -> tensor<3x2xf32>
    %15 = aten.view.default(%t, [3, 4, 1]) : (tensor<3x4xf32>) -> tensor<3x4x1xf32>
    %16 = aten.bmm.default(%12, %15) : (tensor<3x2x4xf32>, tensor<3x4x1xf32>) -> tensor<3x2x1xf32>
    %g = aten.view.default(%16, [3, 2]) : (tensor<3x2x1xf32>) -> tensor<3x2xf32>
    func.return %v, %g : tensor<3x2xf32>, tensor<3x2xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.families import is_of
from stepwell.ir.declared.numerics import Deviation, Proof
from stepwell.ir.diagnostics import op_name
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.sizes.size import Size, settled
from stepwell.ir.types import Dim, dims, tensor
from stepwell.translate.range_analysis import is_finite
from stepwell.translate.rewrites.building import (
    axis,
    emit,
    permute_op,
    view,
    view_op,
)
from stepwell.translate.rewrites.experts.routing import (
    Choice,
    Reading,
    choice_of,
    readers,
    reading_of,
)
from stepwell.translate.rewrites.xnnpack.nodes.slots import slots_of


@dataclass(frozen=True)
class Ranked:
    """A `topk`, and the readers of its indices."""

    choice: Choice
    readings: tuple[Reading, ...]


@dataclass(frozen=True)
class ChooseByRank(Rewrite[Ranked]):
    """Replace `topk`, and gathers by its indices, by comparisons in arithmetic and products."""

    name: ClassVar[str] = "choose-by-rank"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.TopkDefault,)
    bound: ClassVar[Bound] = Bound(0.0, 5e-324, "a sum of zeros is +0")

    def match(self, op: SchemaOp, program: Program) -> Ranked | Refusal | None:
        """Match short rows of float32, if every reader of the indices has an arithmetic form."""
        choice = choice_of(op)
        if not isinstance(choice, Choice):
            return choice
        readings: list[Reading] = []
        for reader in readers(op.results[1]):
            reading = reading_of(reader, choice, program)
            if reading is None:
                return Refusal(f"the chosen indices are read by {op_name(reader)}")
            readings.append(reading)
        if not readings and not op.results[0].uses:
            return None  # The rest of it is dead.
        return Ranked(choice, tuple(dict.fromkeys(readings)))

    def deviates(self, match: Ranked, program: Program) -> Deviation | None:
        """Return the deviation of multiplying elements that are not chosen by zero: NaN or ∞ gives
        NaN.
        """
        op, sources = match.choice.op, [reading.source for reading in match.readings]
        spread = Deviation("an infinity or NaN beside what is chosen makes that NaN")
        alone = None if sources else is_whole_in_rows(op)
        scores = is_finite(op.operands[0], program) or alone
        return spread.unless(scores, *(is_finite(source, program) for source in sources))

    def build(self, match: Ranked, rw: Rewriter) -> None:
        """Build the ranks, the slots, and a product for the values and for each reader."""
        choice, op = match.choice, match.choice.op
        scores = op.operands[0]
        slots = slots_of(choice, rw).ssa
        if op.results[0].uses:
            columns = view(rw, scores, [choice.rows, choice.among, 1])
            values = emit(rw, _product(slots, columns))
            rw.replace_value(op.results[0], view(rw, values, dims(op.results[0].type)))
        for reading in match.readings:
            rw.replace(reading.op, [_read(rw, reading, choice, slots)])


def _read(rw: Rewriter, reading: Reading, choice: Choice, slots: SSAValue) -> SSAValue:
    """Build a reader's result in the place of the reader."""

    def seen(value: SSAValue, shape: Sequence[Dim]) -> SSAValue:
        is_so = dims(value.type) == tuple(shape)
        return value if is_so else rw.insert(view_op(rw, value, shape), reading.op).results[0]

    source, width, rows = reading.source, reading.width, reading.rows
    taken = settled(Size.of(choice.every) // Size.of(rows))
    if isinstance(reading.op, aten.IndexTensor):
        slots = seen(slots, [1, taken, choice.among])
        source = seen(source, [1, choice.among, width])
    elif isinstance(reading.op, aten.ScatterAddDefault):
        slots = seen(slots, [rows, taken, choice.among])
        slots = rw.insert(permute_op(slots, [0, 2, 1]), reading.op).results[0]
        source = seen(source, [rows, taken, width])
    else:
        slots = seen(slots, [rows, taken, choice.among])
        source = seen(source, [rows, choice.among, width])
    product = rw.insert(_product(slots, source), reading.op).results[0]
    return seen(product, dims(reading.op.results[0].type))


def _product(left: SSAValue, right: SSAValue) -> SchemaOp:
    result_type = tensor([*dims(left.type)[:2], dims(right.type)[2]], f32)
    return aten.BmmDefault.make(left, right, result_types=[result_type])


def is_whole_in_rows(op: SchemaOp) -> Proof | None:
    """Prove that a row is all NaN or has no NaN, and that its greatest elements are finite."""
    scores = op.operands[0].owner
    if not isinstance(scores, SchemaOp) or not is_of(scores, "distribution"):
        return None
    rank = len(dims(op.operands[0].type))
    if axis(scores.arg("dim"), rank) != axis(op.arg("dim"), rank):
        return None
    return Proof("a row of probabilities is NaN throughout, or finite")
