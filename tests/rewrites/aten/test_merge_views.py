"""`merge-views` and its neighbors: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.rewrites.views.merge_views import RULES

test_merge_views = cases(
    RULES,
    """
unit-permute-to-view: a permute that moves elements is no view -> unchanged
    %y = aten.permute.default(%x: f32[1, 2, 3], [2, 0, 1])
merge-views: a view and its inverse vanish -> aten.neg.default
    %a = aten.view.default(%x: f32[2, 3], [6])
    %b = aten.view.default(%a, [2, 3])
    %y = aten.neg.default(%b)
merge-views: a shape of two new sizes -> refused: at run time
    %p = aten.select.int(%x: f32[a, b, 4], 2, 0)
    %l = aten.cat.default([%p, %p], 0)
    %n = aten.sym_size.int(%l, 0)
    %v = aten.view.default(%x, [-1])
    %y = aten.view.default(%v, [%n, -1])
merge-views: an empty tensor of a symbolic length -> refused: empty
    %n = aten.sym_size.int(%x: f32[n, 0, 4], 0)
    %v = aten.view.default(%x, [%n, 0, 2, 2])
    %y = aten.view.default(%v, [%n, 0, 2])
merge-views: a length that is no expression -> refused: not known
    %v = aten.view.default(%x: f32[?, 4], [-1, 2, 2]) -> f32[?, 2, 2]
    %y = aten.view.default(%v, [-1, 2]) -> f32[?, 2]
merge-views: a known shape of a length that is no expression is one view -> aten.view.default
    %v = aten.view.default(%x: f32[?, 4], [-1, 2, 2]) -> f32[?, 2, 2]
    %y = aten.view.default(%v, [4, 5]) -> f32[4, 5]
""",
)
