"""Merge the features of a linear layer but not its rows, where a view merges both.

`[n, b, h, d]` viewed as `[n·b, h·d]` is valid for the layer, but XNNPACK cannot split merged rows
of symbolic sizes again. The layer accepts rows in any shape; only the features must be one axis.

rule merge-features-first
    `linear(view(x))` to `view(linear(view(x)))`, the inner view of features alone.
Before:
    %v = aten.view.default(%x, …)
    %y = aten.linear.default(%v, %w, $b) : (…) -> $Y
After:
    %g = in_rows(%x, $rows, %w)
    %l = aten.linear.default(%g, %w, $b) : … -> tensor<$*rows x outputs(%w) x element_of(%x)>
    %y = viewed(%l, %y)
where is_matrix(%w)
with $rows = rows_of(%x, %v)
where only_layers_read(%v) for cost else "not only linear layers read the view"
unless has_no_view(%x, %y)
bound of roundings: "a batched GEMM may sum in another order"
for %w = weight : tensor<5 x 4 x f32>
for %x = 'tensor<?x?x2x2xf32, #stepwell.shape<["n", "b", 2, 2]>>', $size = [-1, 4]
for $Y = 'tensor<?x5xf32, #stepwell.shape<["b*n", 5]>>'
not for %w = weight : tensor<4 x f32>; $Y = 'tensor<?xf32, #stepwell.shape<["b*n"]>>'
not for %i = 'tensor<?x?xf32, #stepwell.shape<["n", "2*b"]>>'; %n = aten.sym_size.int(%i, 0);
    %b = aten.sym_size.int(%i, 1); $size = [%n, %b, 4],
    %x = 'tensor<?x?x2x2xf32, #stepwell.shape<["2*n", "b", 2, 2]>>',
    $Y = 'tensor<?x?x5xf32, #stepwell.shape<["n", "2*b", 5]>>'
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

from stepwell.dialects import aten
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import Dim, dims, element
from stepwell.translate.rewrites.building import is_open_once, view
from stepwell.translate.rewrites.layers import sink_view_below_linear
from stepwell.translate.rewrites.views import merge_views
from stepwell.translate.rules import read_rules


def rows_of(value: SSAValue, merged: SSAValue) -> tuple[Dim, ...] | None:
    """Return the axes before the features, two of them symbolic, that a view also merges."""
    (*leading, features), shape = dims(merged.type), dims(value.type)
    rows = _rows(shape, features)
    return None if is_open_once(shape) or rows == (*leading,) else rows


def only_layers_read(merged: SSAValue) -> bool:
    """Whether only linear layers read a view."""
    return all(isinstance(use.operation, aten.LinearDefault) for use in merged.uses)


def outputs(weight: SSAValue) -> Dim:
    """Return the number of a layer's output features."""
    return dims(weight.type)[0]


def element_of(value: SSAValue) -> Attribute:
    """Return the element type of a tensor."""
    return element(value.type)


def in_rows(rw: Rewriter, value: SSAValue, rows: Sequence[Dim], weight: SSAValue) -> SSAValue:
    """Return a value with its features merged into one axis."""
    return view(rw, value, (*rows, dims(weight.type)[-1]))


def _rows(shape: tuple[Dim, ...], features: Dim) -> tuple[Dim, ...] | None:
    """Return the sizes before the axes whose product is the number of features."""
    count, axes = 1, len(shape)
    while axes > 1 and count != features and isinstance(size := shape[axes - 1], int):
        count, axes = count * size, axes - 1
    return shape[:axes] if count == features and axes < len(shape) - 1 else None


(MergeFeaturesFirst,) = RULES = read_rules(
    __doc__, vars(merge_views) | vars(sink_view_below_linear) | globals()
)
