"""NormalizeReduction: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import products

test_normalize_reduction = cases(
    products,
    """
normalize-reduction: indices that are used keep the op -> refused: indices
    %a, %y = aten.max.dim(%x: f32[2, 3], 1)
    return %y
normalize-reduction: a mean in normal form -> unchanged
    %y = aten.mean.dim(%x: f32[2, 3], [1], true)
normalize-reduction: a sum of integers casts them as torch does -> aten._to_copy.default, aten.sum.dim_IntList, aten.view.default
    %y = aten.sum.dim_IntList(%x: i32[2, 3], [1])
normalize-reduction: a dtype casts the operand first -> aten._to_copy.default, aten.mean.dim
    %y = aten.mean.dim(%x: f32[2, 3], [0], true, dtype=f64)
normalize-reduction: a number has no axes to reduce -> unchanged
    %y = aten.sum.default(%x: f32[])
""",
)
