"""Unit axes are dropped before a permute only if the view drops nothing else."""

from rewrite_cases import cases

from stepwell.translate.rewrites.views.merge_views import RULES

(RULE,) = RULES.named("squeeze-permute")


test_squeeze_permute = cases(
    RULE,
    """
a view that merges axes -> unchanged
    %p = aten.permute.default(%x: f32[2, 1, 3], [2, 1, 0])
    %y = aten.view.default(%p, [6])
a view that adds an axis -> unchanged
    %p = aten.permute.default(%x: f32[2, 1, 3], [2, 1, 0])
    %y = aten.view.default(%p, [1, 3, 1, 2])
a view of no permute -> unchanged
    %y = aten.view.default(%x: f32[2, 1, 3], [2, 3])
a permute read with its unit axes -> refused: read with its unit axes
    %p = aten.permute.default(%x: f32[2, 1, 3], [2, 1, 0])
    %v = aten.view.default(%p, [3, 2])
    %y = aten.add.Tensor(%v, %p)
""",
)
