"""SelectByConstantMask: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.rewrites.slices.select_by_constant_mask import SelectByConstantMask

test_select_by_constant_mask = cases(
    SelectByConstantMask,
    """
a mixed mask is left where a nan could hide -> refused: NaN
    %y = aten.masked_fill.Scalar(%x: f32[3, 3], %m: constant "m#causal" i1[3, 3], -inf)
a computed mask -> unchanged
    %y = aten.masked_fill.Scalar(%x: f32[3, 3], %m: i1[3, 3], 0.0)
""",
)


test_select_by_constant_mask_together = cases(
    SelectByConstantMask(hides_no_nan=True),
    """
a finite other side is no arithmetic -> refused: no arithmetic is exact
    %y = aten.masked_fill.Scalar(%x: f32[3, 3], %m: constant "m#causal" i1[3, 3], 0.0)
minus infinity is a minimum where no nan can hide -> aten.minimum.default
    %y = aten.where.ScalarOther(%m: constant "m#causal" i1[3, 3], %x: f32[3, 3], -inf)
a kept side that grows or has no order -> refused: broadcast or cast
    - %y = aten.where.ScalarOther(%m: constant "m#causal" i1[3, 3], %x: f32[1, 3], -inf)
    - %y = aten.where.ScalarOther(%m: constant "m#causal" i1[3, 3], %x: complex<f32>[3, 3], -inf)
""",
)
