"""Powers, quotients and factors: beyond their examples, and what stays."""

from rewrite_cases import cases

from stepwell.translate.canonicalize.powers import RULES

test_powers = cases(
    RULES,
    """
power-to-square | power-to-cube | power-to-root | power-to-inverse-root | power-to-reciprocal | power-to-inverse-square: a fourth power -> unchanged
    %y = aten.pow.Tensor_Scalar(%x: f32[2, 3], 4)
power-to-square: half precision is rounded once -> refused: rounds
    %y = aten.pow.Tensor_Scalar(%x: f16[2, 3], 2)
power-to-square: an exponent that promotes -> refused: rounds
    %y = aten.pow.Tensor_Scalar(%x: i64[2, 3], 2.0)
a cube is two products -> aten.mul.Tensor, aten.mul.Tensor
    %y = aten.pow.Tensor_Scalar(%x: f32[2, 3], 3.0)
an inverse square is a product and a reciprocal -> aten.mul.Tensor, aten.reciprocal.default
    %y = aten.pow.Tensor_Scalar(%x: f32[2, 3], -2)
division-to-multiplication: a third is not exact -> refused: not exact
    %y = aten.div.Scalar(%x: f32[2, 3], 3.0)
division-to-multiplication: a power of two whose reciprocal is subnormal -> refused: not exact
    %y = aten.div.Scalar(%x: f32[2, 3], 1.7014118346046923e+38)
division-to-multiplication: integers divided -> unchanged
    %y = aten.div.Scalar(%x: i64[2, 3], 2)
division-to-multiplication: a divisor known only at run time -> refused: known only at run time
    %y = aten.div.Scalar(%x: f32[3], %n: int<n>)
merge-scalar-products: a product read twice -> unchanged
    %a = aten.mul.Scalar(%x: f32[2, 3], 2)
    %b = aten.mul.Scalar(%a, 3)
    %y = aten.add.Tensor(%a, %b)
merge-scalar-products: a factor that underflows -> refused: underflow
    %a = aten.mul.Scalar(%x: f32[2, 3], 1e-10)
    %y = aten.mul.Scalar(%a, 1e-30)
merge-scalar-products: integers -> unchanged
    %a = aten.mul.Scalar(%x: i64[2, 3], 2)
    %y = aten.mul.Scalar(%a, 3)
merge-scalar-products: a first product that overflows -> refused: overflow
    %a = aten.mul.Scalar(%x: f32[2, 3], 1e+30)
    %y = aten.mul.Scalar(%a, 1e-30)
merge-scalar-products: factors of which one grows and one shrinks -> refused: shrinks and one grows
    - %a = aten.mul.Scalar(%x: f32[2, 3], 1e-10); %y = aten.mul.Scalar(%a, 10000000000.0)
    - %a = aten.mul.Scalar(%x: f32[2, 3], 1000000000000000.0); %y = aten.mul.Scalar(%a, 1e-15)
merge-scalar-products: a factor known only at run time -> unchanged
    - %a = aten.mul.Scalar(%x: f32[3], %n: int<n>); %y = aten.mul.Scalar(%a, 2.0)
    - %a = aten.mul.Scalar(%x: f32[3], 2.0); %y = aten.mul.Scalar(%a, %n: int<n>)
""",
)
