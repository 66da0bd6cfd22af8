"""ReshapeToView: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import views

test_reshape_to_view = cases(
    views,
    """
reshape-to-view: a view that is written out -> unchanged
    %y = aten.view.default(%x: f32[2, 3], [3, 2])
reshape-to-view: a symbolic size is written as minus one -> aten.view.default
    %y = aten.unsqueeze.default(%x: f32[s0, 3], 1)
reshape-to-view: a second symbolic size is read from the operand -> aten.sym_size.int, aten.view.default
    %y = aten.unsqueeze.default(%x: f32[s0, s1, 3], 0)
reshape-to-view: a view as a number -> unchanged
    %y = aten.view.default(%x: f32[1], [])
""",
)
