"""Merge the features of a linear layer ahead of its rows, where a view merges both.

`[n, b, h, d]` viewed as `[n·b, h·d]` is right for the layer, but where rows are merged XNNPACK cannot
part them again. The layer works on rows in any shape: only the features have to be one axis.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<5x4xf32>
    %v = aten.view.default(%x, [-1, 4]) : (tensor<?x?x2x2xf32, #stepwell.shape<["n", "b", 2, 2]>>) -> tensor<?x4xf32, #stepwell.shape<["b*n", 4]>>
    %y = aten.linear.default(%v, %w) : (tensor<?x4xf32, #stepwell.shape<["b*n", 4]>>, tensor<5x4xf32>) -> tensor<?x5xf32, #stepwell.shape<["b*n", 5]>>
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<5x4xf32>
    %0 = aten.sym_size.int(%x, 1) : (tensor<?x?x2x2xf32, #stepwell.shape<["n", "b", 2, 2]>>) -> !stepwell.int<"b">
    %1 = aten.view.default(%x, [-1, %0, 4]) : (tensor<?x?x2x2xf32, #stepwell.shape<["n", "b", 2, 2]>>, !stepwell.int<"b">) -> tensor<?x?x4xf32, #stepwell.shape<["n", "b", 4]>>
    %2 = aten.linear.default(%1, %w) : (tensor<?x?x4xf32, #stepwell.shape<["n", "b", 4]>>, tensor<5x4xf32>) -> tensor<?x?x5xf32, #stepwell.shape<["n", "b", 5]>>
    %y = aten.view.default(%2, [-1, 5]) : (tensor<?x?x5xf32, #stepwell.shape<["n", "b", 5]>>) -> tensor<?x5xf32, #stepwell.shape<["b*n", 5]>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.program import Program
from stepwell.ir.rewriter import remade
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.translate.rewrites.building import cannot_be_viewed_as, emit, is_open_once, view


@dataclass(frozen=True)
class MergedRows:
    """A layer of a view of `source`, of which `rows` stand before the features."""

    op: SchemaOp
    source: SSAValue
    rows: tuple[Dim, ...]


@dataclass(frozen=True)
class MergeFeaturesFirst(Rewrite[MergedRows]):
    """`linear(view(x))` to `view(linear(view(x)))`, the inner view of features alone."""

    name: ClassVar[str] = "merge-features-first"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.LinearDefault,)
    bound: ClassVar[Bound] = roundings("a batched GEMM may sum in another order")

    def match(self, op: SchemaOp, program: Program) -> MergedRows | Refusal | None:
        """Guards: two sizes are symbolic, and the view merges features and rows, for layers alone."""
        merge, weight = op.operands[0].owner, op.operands[1]
        if not isinstance(merge, aten.ViewDefault) or len(dims(weight.type)) != 2:
            return None
        source, (*leading, features) = merge.operands[0], dims(merge.results[0].type)
        rows = _rows(dims(source.type), features)
        if is_open_once(dims(source.type)) or rows is None or rows == (*leading,):
            return None
        if any(not isinstance(use.operation, aten.LinearDefault) for use in merge.results[0].uses):
            return Refusal("not only linear layers read the view")
        return cannot_be_viewed_as(source, dims(op.results[0].type)) or MergedRows(op, source, rows)

    def build(self, match: MergedRows, rw: Rewriter) -> None:
        """The features as one axis, the layer, then the view."""
        op, (*_, features) = match.op, dims(match.op.operands[1].type)
        result = op.results[0].type
        given = view(rw, match.source, (*match.rows, features))
        type_ = tensor((*match.rows, dims(result)[-1]), element(result))
        new = emit(rw, remade(op, [given, *op.operands[1:]], [type_]))
        rw.replace(op, [view(rw, new, dims(result))])


def _rows(shape: tuple[Dim, ...], features: Dim) -> tuple[Dim, ...] | None:
    """What stands before the axes, two or more, that are so many features together."""
    count, axes = 1, len(shape)
    while axes > 1 and count != features and isinstance(size := shape[axes - 1], int):
        count, axes = count * size, axes - 1
    return shape[:axes] if count == features and axes < len(shape) - 1 else None
