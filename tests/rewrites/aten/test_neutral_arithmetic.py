"""Arithmetic with neutral numbers: beyond its examples, and what stays."""

from rewrite_cases import cases

from stepwell.translate.canonicalize.neutral_arithmetic import RULES

test_neutral_arithmetic = cases(RULES)("""
remove-neutral-sum: adding positive zero stays because of negative zero -> refused: 0.0
    %y = aten.add.Scalar(%x: f32[2, 3], 0.0)
remove-neutral-difference: subtracting zero times a negative alpha -> refused: 0.0
    %y = aten.sub.Scalar(%x: f32[2, 3], 0.0, -1)
remove-neutral-difference: subtracting zero times a whole zero -> refused: 0.0
    %y = aten.sub.Scalar(%x: f32[2, 3], 0, 0)
remove-neutral-product: a product that promotes integers -> unchanged
    %y = aten.mul.Scalar(%x: i64[2, 3], 1.0)
remove-neutral-product: a product with another number -> unchanged
    %y = aten.mul.Scalar(%x: f32[2, 3], 1.5)
adding negative zero goes -> aten.neg.default
    %a = aten.add.Scalar(%x: f32[2, 3], -0.0); %y = aten.neg.default(%a)
adding zero to integers goes -> aten.neg.default
    %a = aten.add.Scalar(%x: i64[2, 3], 0); %y = aten.neg.default(%a)
remove-neutral-difference: zero times an infinite alpha is no zero -> refused: times alpha is NaN
    %y = aten.sub.Scalar(%x: f32[2, 3], 0.0, inf)
""")
