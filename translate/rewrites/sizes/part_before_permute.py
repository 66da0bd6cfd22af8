"""Part an axis before a permutation, where it meets the view that merged it.

`torch.nn.MultiheadAttention` merges batch and heads, permutes, and parts them again. With numbers
those views cost nothing; XNNPACK works out one symbolic size, and has two to find in both. Ahead of
the permutation the view that parts is one with that which merges.

Before:
    %b = aten.sym_size.int(%x, 1) : (tensor<?x?x6xf32, #stepwell.shape<["n", "b", 6]>>) -> !stepwell.int<"b">
    %n = aten.sym_size.int(%x, 0) : (tensor<?x?x6xf32, #stepwell.shape<["n", "b", 6]>>) -> !stepwell.int<"n">
    %p = aten.permute.default(%x, [2, 1, 0]) : (tensor<?x?x6xf32, #stepwell.shape<["n", "b", 6]>>) -> tensor<6x?x?xf32, #stepwell.shape<[6, "b", "n"]>>
    %y = aten.view.default(%p, [2, 3, %b, %n]) : (tensor<6x?x?xf32, #stepwell.shape<[6, "b", "n"]>>, !stepwell.int<"b">, !stepwell.int<"n">) -> tensor<2x3x?x?xf32, #stepwell.shape<[2, 3, "b", "n"]>>
After:
    %0 = aten.sym_size.int(%x, 1) : (tensor<?x?x6xf32, #stepwell.shape<["n", "b", 6]>>) -> !stepwell.int<"b">
    %1 = aten.view.default(%x, [-1, %0, 2, 3]) : (tensor<?x?x6xf32, #stepwell.shape<["n", "b", 6]>>, !stepwell.int<"b">) -> tensor<?x?x2x3xf32, #stepwell.shape<["n", "b", 2, 3]>>
    %y = aten.permute.default(%1, [2, 3, 1, 0]) : (tensor<?x?x2x3xf32, #stepwell.shape<["n", "b", 2, 3]>>) -> tensor<2x3x?x?xf32, #stepwell.shape<[2, 3, "b", "n"]>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import Dim, dims
from stepwell.translate.rewrites.building import (
    axis,
    cannot_be_viewed_as,
    emit_as,
    is_known,
    is_open_once,
    permute_op,
    view,
)
from stepwell.translate.rewrites.sizes.keep_axes_apart import spread


@dataclass(frozen=True)
class Parted:
    """A view that parts axis `at` of a permutation into `parts`."""

    op: aten.ViewDefault
    permute: aten.PermuteDefault
    at: int
    parts: tuple[Dim, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The permutation's."""
        order = self.permute.arg("dims")
        return tuple(axis(each, len(order)) for each in order)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Of the view ahead of it."""
        source = dims(self.permute.operands[0].type)
        parted = self.order[self.at]
        return (*source[:parted], *self.parts, *source[parted + 1 :])


@dataclass(frozen=True)
class PartBeforePermute(Rewrite[Parted]):
    """`view(permute(x))` to `permute(view(x))` where two sizes are symbolic."""

    name: ClassVar[str] = "part-before-permute"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ViewDefault,)

    def match(self, op: aten.ViewDefault, program: Program) -> Parted | Refusal | None:
        """Guards: one axis is parted, the others stay, and XNNPACK could not work the view out."""
        permute = op.operands[0].owner
        if not isinstance(permute, aten.PermuteDefault):
            return None
        given, made = dims(permute.results[0].type), dims(op.results[0].type)
        count = len(made) - len(given) + 1
        if count < 2 or is_open_once(made) or not is_known((*given, *made)):
            return None
        for at in range(len(given)):
            if given[:at] == made[:at] and given[at + 1 :] == made[at + count :]:
                match = Parted(op, permute, at, made[at : at + count])
                return cannot_be_viewed_as(permute.operands[0], match.shape) or match
        return None

    def build(self, match: Parted, rw: Rewriter) -> None:
        """The view of what is permuted, then the permutation of the parts."""
        order = spread(match.order, match.order[match.at], len(match.parts))
        apart = view(rw, match.permute.operands[0], match.shape)
        rw.replace(match.op, [emit_as(rw, permute_op(apart, order), match.op.results[0])])
