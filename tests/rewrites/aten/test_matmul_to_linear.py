"""MatmulToLinear: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import products

test_matmul_to_linear = cases(
    products,
    """
matmul-to-linear: a product with a computed matrix -> unchanged
    %y = aten.mm.default(%x: f32[2, 3], %w: f32[3, 4])
matmul-to-linear: factors -> refused: alpha or beta
    %y = aten.addmm.default(%b: f32[4], %x: f32[2, 3], %w: weight f32[3, 4], beta=2)
matmul-to-linear: a residual in addmm is added behind -> aten.linear.default, aten.add.Tensor
    %y = aten.addmm.default(%b: f32[2, 4], %x: f32[2, 3], %w: weight f32[3, 4])
matmul-to-linear: a batch times a weight is one linear -> aten.linear.default
    %y = aten.matmul.default(%x: f32[5, 2, 3], %w: weight f32[3, 4])
matmul-to-linear: a product with a vector is no layer -> unchanged
    %y = aten.matmul.default(%x: f32[2, 3], %w: weight f32[3])
""",
)
