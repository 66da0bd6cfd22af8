"""Ops that move elements by their shapes alone: one GATHER by constant places.

Diagonals, windows side by side (`unfold`, `im2col`): which element goes where is asked
of torch, by moving 0, 1, 2, … Runs of neighbours go as one, and im2col's padding is an element of
its own behind the others.

Before:
    %y = aten.diagonal.default(%x) : (tensor<3x3xf32>) -> tensor<3xf32>
After:
    %0 = tosa.const_shape {values = dense<[9, 1]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %1 = tosa.reshape %x, %0 : (tensor<3x3xf32>, !tosa.shape<2>) -> tensor<9x1xf32>
    %2 = tosa.const_shape {values = dense<[1, 9, 1]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %3 = tosa.reshape %1, %2 : (tensor<9x1xf32>, !tosa.shape<3>) -> tensor<1x9x1xf32>
    %4 = tosa.gather %3, dense<[[0, 4, 8]]> : (tensor<1x9x1xf32>, tensor<1x3xi32>) -> tensor<1x3x1xf32>
    %5 = tosa.const_shape {values = dense<[3, 1]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %6 = tosa.reshape %4, %5 : (tensor<1x3x1xf32>, !tosa.shape<2>) -> tensor<3x1xf32>
    %7 = tosa.const_shape {values = dense<3> : tensor<1xindex>} : () -> !tosa.shape<1>
    %y = tosa.reshape %6, %7 : (tensor<3x1xf32>, !tosa.shape<1>) -> tensor<3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.slices.moved_places import MOST_PLACES, longest_run, places
from stepwell.translate.rewrites.tosa.operators.building import Builder, elements, shape_of
from stepwell.translate.rewrites.tosa.operators.lowering import LowerToTosa
from stepwell.translate.rewrites.tosa.operators.rows import gathered


@dataclass(frozen=True)
class MoveByPattern(LowerToTosa):
    """`diagonal`, `unfold`, `im2col`, `pixel_unshuffle`, strided slices to GATHER."""

    name: ClassVar[str] = "move-by-pattern-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.ChannelShuffleDefault,
        aten.DiagonalDefault,
        aten.DiagonalCopyDefault,
        aten.Im2colDefault,
        aten.PixelUnshuffleDefault,
        aten.UnfoldDefault,
        aten.UnfoldCopyDefault,
    )
    takes_symbols: ClassVar[bool] = False
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Not too many elements."""
        count = elements(shape_of(op.results[0]))
        if count > MOST_PLACES:
            return Refusal(f"its {count} places would be a constant of {4 * count} bytes")
        return None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """The elements in one row, padding behind them, and the rows of the pattern."""
        x = op.operands[0]
        count = elements(shape_of(x))
        pattern = places(op)
        run = 1 if bool((pattern < 0).any()) else longest_run(pattern, count)
        values = b.reshape(x, (count // run, run))
        rows = pattern[::run] // run
        if bool((pattern < 0).any()):
            pads = [b.sizes((0, 1, 0, 0)), b.zero(element(x.type))]
            values = b.op(t.PadOp, [values, *pads], (count + 1, 1), element(x.type))
            rows = torch.where(pattern < 0, count, pattern)
        return b.reshape(gathered(values, 0, rows.tolist(), b), shape_of(op.results[0]))
