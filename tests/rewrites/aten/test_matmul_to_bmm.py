"""MatmulToBmm: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import products

test_matmul_to_bmm = cases(
    products,
    """
matmul-to-bmm: a product with a weight is left to linear -> unchanged
    %y = aten.mm.default(%x: f32[2, 3], %w: weight f32[3, 4])
matmul-to-bmm: factors -> refused: alpha or beta
    %y = aten.baddbmm.default(%b: f32[1, 2, 4], %x: f32[1, 2, 3], %w: f32[1, 3, 4], alpha=2)
matmul-to-bmm: a dot product is one row times one column -> aten.view.default, aten.view.default, aten.bmm.default, aten.view.default
    %y = aten.dot.default(%x: f32[3], %w: f32[3])
matmul-to-bmm: a matrix on the right of a batch is not repeated -> aten.view.default, aten.view.default, aten.bmm.default, aten.view.default
    %y = aten.matmul.default(%x: f32[5, 2, 3], %w: f32[3, 4])
matmul-to-bmm: a symbolic side -> refused: symbolic
    - %y = aten.matmul.default(%x: f32[n, 3], %z: f32[3, 3])
    - %y = aten.matmul.default(%x: f32[2, 3], %z: f32[3, n])
""",
)
