"""Cut with slices what a negative padding takes away.

`F.pad` with a negative amount crops. No target's pad does, and ExecuTorch's own kernel refuses it
at run time.

Before:
    %y = aten.constant_pad_nd.default(%x, [-1, 2], 0.5) : (tensor<2x5xf32>) -> tensor<2x6xf32>
After:
    %s = aten.slice.Tensor(%x, 1, 1, 5, 1) : (tensor<2x5xf32>) -> tensor<2x4xf32>
    %y = aten.constant_pad_nd.default(%s, [0, 2], 0.5) : (tensor<2x4xf32>) -> tensor<2x6xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.building import become, emit_as, slice_axis, static_dims


@dataclass(frozen=True)
class Crop:
    """What stays of each axis (start, stop), and the padding that is left to do."""

    op: SchemaOp
    kept: tuple[tuple[int, int], ...]
    amounts: tuple[int, ...]


@dataclass(frozen=True)
class CropToSlice(Rewrite[Crop]):
    """`aten.constant_pad_nd` with negative amounts to slices, and a pad of what is not negative."""

    name: ClassVar[str] = "crop-to-slice"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ConstantPadNdDefault,)

    def match(self, op: SchemaOp, program: Program) -> Crop | Refusal | None:
        """Guards: an amount is negative; all are numbers, and so are the sizes they cut."""
        amounts = op.arg("pad")
        if any(isinstance(amount, SSAValue) for amount in amounts):
            return Refusal("the padding is known only at run time")
        if min(amounts, default=0) >= 0:
            return None
        shape = static_dims(op.operands[0])
        if shape is None:
            return Refusal("the cropped shape is symbolic")
        kept = [(0, size) for size in shape]
        for index in range(len(amounts) // 2):
            before, after = amounts[2 * index : 2 * index + 2]
            at = len(shape) - 1 - index
            kept[at] = (max(0, -before), shape[at] + min(0, after))
        if any(start >= stop for start, stop in kept):
            return Crop(op, (), tuple(amounts))
        return Crop(op, tuple(kept), tuple(max(0, amount) for amount in amounts))

    def build(self, match: Crop, rw: Rewriter) -> None:
        """A slice for each cropped axis, then the pad if it adds anything."""
        value, result = match.op.operands[0], match.op.results[0]
        if not match.kept:  # Nothing stays but what is put around it.
            held, shape = element(result.type), list(dims(result.type))
            number = match.op.arg("value")
            become(rw, match.op, aten.FullDefault, shape, number, dtype=held)
            return
        for at, (start, stop) in enumerate(match.kept):
            value = slice_axis(rw, value, at, start, stop)
        if any(match.amounts):
            pad = aten.ConstantPadNdDefault.make(
                value, list(match.amounts), match.op.arg("value"), result_types=[result.type]
            )
            value = emit_as(rw, pad, result)
        rw.replace(match.op, [value])
