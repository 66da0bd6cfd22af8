"""Sinking: move a view that only regroups leading axes after the linear layers that read it.

Decomposition flattens `[B, N, C]` to `[B·N, C]` around every product. After the linear layer the
view meets the one that restores the shape, and both are removed.

rule sink-view-below-linear
    The layer of what the view views, then the view.
Before:
    %v = aten.view.default(%x, …)
    %y = aten.linear.default(%v, %w, $b) : (…) -> tensor<$*R x $F x $E>
After:
    %l = aten.linear.default(%x, %w, $b) : … -> tensor<*rows(%x) x $F x $E>
    %y = viewed(%l, %y)
where keeps_last_axis(%x, %v)
where is_matrix(%w) else "the weight is a vector: the result has no features"
unless is_read_by_others(%v) for cost
unless has_no_view(%x, %y)
bound of roundings: "a batched GEMM may sum in another order"
for $size = [6, 4], $R = [6], $F = 5, $E = f32, %x = "tensor<2x3x4xf32>", %w = "tensor<5x4xf32>"
not for %i = 'tensor<?x?xf32, #stepwell.shape<["n", "b"]>>'; %n = aten.sym_size.int(%i, 0); %b = aten.sym_size.int(%i, 1);
    %x = 'tensor<?x4xf32, #stepwell.shape<["b*n", 4]>>', $size = [%n, %b, 4]
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import Dim, dims
from stepwell.translate.rewrites.views import merge_views
from stepwell.translate.rules import read_rules


def rows(value: SSAValue) -> Sequence[Dim]:
    """Return the sizes of all axes but the last."""
    return dims(value.type)[:-1]


def keeps_last_axis(value: SSAValue, view: SSAValue) -> bool:
    """Whether a view keeps the last axis."""
    value_dims = dims(value.type)
    return len(value_dims) > 1 and value_dims[-1] == dims(view.type)[-1]


def is_matrix(value: SSAValue) -> bool:
    """Whether the value has two axes."""
    return len(dims(value.type)) == 2


def is_read_by_others(view: SSAValue) -> Refusal | None:
    """Refuse if the view is read by other ops than linear layers, or as a layer's weight."""
    for use in view.uses:
        if not isinstance(use.operation, aten.LinearDefault) or use.index != 0:
            return Refusal(f"{use.operation.name} reads the view too")
    return None


RULES = read_rules(__doc__, vars(merge_views) | globals())
