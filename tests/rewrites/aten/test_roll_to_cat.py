"""RollToCat: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import slices

test_roll_to_cat = cases(
    slices,
    """
roll-to-cat: a flip is refused with the reason -> refused: gather
    %y = aten.flip.default(%x: f32[2, 3], [1])
roll-to-cat: a roll without axes rolls the flat tensor -> aten.view.default, aten.slice.Tensor, aten.slice.Tensor, aten.cat.default, aten.view.default
    %y = aten.roll.default(%x: f32[2, 3], [2])
roll-to-cat: shifts of one axis that cancel vanish -> aten.neg.default
    %a = aten.roll.default(%x: f32[2, 3], [4, -1], [1, 1])
    %y = aten.neg.default(%a)
""",
)
