"""Spell `pixel_shuffle`, `pixel_unshuffle` and `channel_shuffle` as view, permute, view.

Before:
    %a = aten.pixel_shuffle.default(%x, 2) : (tensor<1x8x3x3xf32>) -> tensor<1x2x6x6xf32>
    %b = aten.neg.default(%a) : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
    %y = aten.pixel_unshuffle.default(%b, 2) : (tensor<1x2x6x6xf32>) -> tensor<1x8x3x3xf32>
After:
    %0 = aten.view.default(%x, [1, 2, 2, 2, 3, 3]) : (tensor<1x8x3x3xf32>) -> tensor<1x2x2x2x3x3xf32>
    %1 = aten.permute.default(%0, [0, 1, 4, 2, 5, 3]) : (tensor<1x2x2x2x3x3xf32>) -> tensor<1x2x3x2x3x2xf32>
    %a = aten.view.default(%1, [1, 2, 6, 6]) : (tensor<1x2x3x2x3x2xf32>) -> tensor<1x2x6x6xf32>
    %b = aten.neg.default(%a) : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
    %2 = aten.view.default(%b, [1, 2, 3, 2, 3, 2]) : (tensor<1x2x6x6xf32>) -> tensor<1x2x3x2x3x2xf32>
    %3 = aten.permute.default(%2, [0, 1, 3, 5, 2, 4]) : (tensor<1x2x3x2x3x2xf32>) -> tensor<1x2x2x2x3x3xf32>
    %y = aten.view.default(%3, [1, 8, 3, 3]) : (tensor<1x2x2x2x3x3xf32>) -> tensor<1x8x3x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.building import permute, static_dims, view


@dataclass(frozen=True)
class Shuffled:
    """View as `shape`, permute by `order`, view as `result`."""

    op: SchemaOp
    shape: tuple[int, ...]
    order: tuple[int, ...]
    result: tuple[int, ...]


@dataclass(frozen=True)
class PixelShuffleToPermute(Rewrite[Shuffled]):
    """Shuffles of channels and pixels to `aten.permute` between views."""

    name: ClassVar[str] = "pixel-shuffle-to-permute"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.PixelShuffleDefault,
        aten.PixelUnshuffleDefault,
        aten.ChannelShuffleDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> Shuffled | Refusal | None:
        """The shape is static."""
        held, result = static_dims(op.operands[0]), static_dims(op.results[0])
        if held is None:
            return Refusal("the shuffled shape is symbolic")
        assert result is not None
        if isinstance(op, aten.ChannelShuffleDefault):
            batch, channels, *space = held
            groups = op.arg("groups")
            shape = (batch, groups, channels // groups, *space)
            order = (0, 2, 1, *range(3, len(shape)))
            return Shuffled(op, shape, order, result)
        *lead, channels, height, width = held
        n = len(lead)
        front = tuple(range(n))
        if isinstance(op, aten.PixelShuffleDefault):
            r = op.arg("upscale_factor")
            shape = (*lead, channels // (r * r), r, r, height, width)
            order = (*front, n, n + 3, n + 1, n + 4, n + 2)
        else:
            r = op.arg("downscale_factor")
            shape = (*lead, channels, height // r, r, width // r, r)
            order = (*front, n, n + 2, n + 4, n + 1, n + 3)
        return Shuffled(op, shape, order, result)

    def build(self, match: Shuffled, rw: Rewriter) -> None:
        """Write view, permute, view."""
        spread = view(rw, match.op.operands[0], match.shape)
        rw.replace(match.op, [view(rw, permute(rw, spread, match.order), match.result)])
