"""RepeatToExpand: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import views

test_repeat_to_expand = cases(
    views,
    """
repeat-to-expand: interleaving all elements -> refused: flattens
    %y = aten.repeat_interleave.self_int(%x: f32[2, 3], 2)
repeat-to-expand: a longer axis is repeated as a whole -> aten.view.default, aten.expand.default, aten.view.default
    %y = aten.tile.default(%x: f32[2, 3], [2])
repeat-to-expand: interleaving repeats each element -> aten.view.default, aten.expand.default, aten.view.default
    %y = aten.repeat_interleave.self_int(%x: f32[2, 3], 2, -1)
repeat-to-expand: sizes that are not repeated may be symbolic -> applied once
    %y = aten.repeat_interleave.self_int(%x: f32[2, n], 3, 0)
repeat-to-expand: an axis of symbolic size is not repeated -> refused: symbolic size
    - %y = aten.repeat.default(%x: f32[2, n], [1, 3])
    - %y = aten.repeat_interleave.self_int(%x: f32[2, n], 3, 1)
repeat-to-expand: beside two open sizes parts stand side by side -> aten.slice.Tensor, aten.slice.Tensor, aten.cat.default
    %y = aten.repeat_interleave.self_int(%x: f32[2, h, w], 3, 0)
repeat-to-expand: beside two open sizes parts stand side by side -> aten.cat.default
    %y = aten.repeat.default(%x: f32[2, h, w], [3, 1, 1])
""",
)
