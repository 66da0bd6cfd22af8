"""Reorderings of axes: beyond their examples, and what stays."""

from rewrite_cases import cases

from stepwell.translate.rewrites.views.transposes import RULES

test_transposes = cases(
    RULES,
    """
permute-axes-from-front: a permute in normal form -> unchanged
    %y = aten.permute.default(%x: f32[2, 3], [1, 0])
adjoint-to-permute: the adjoint of a complex matrix -> refused: conjugates
    %y = aten.adjoint.default(%x: complex<f32>[2, 3])
movedim of several axes keeps the order of the others -> aten.permute.default
    %y = aten.movedim.intlist(%x: f32[2, 3, 4, 5], [0, 2], [3, -4])
the transpose of a vector is the identity permute -> aten.permute.default
    %y = aten.t.default(%x: f32[3])
""",
)
