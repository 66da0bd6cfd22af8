"""VarianceToMeans: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import statistics

test_variance_to_means = cases(
    statistics,
    """
variance-to-means: a variance of one element has nothing to divide by -> refused: give a divisor of 0
    %y = aten.var.correction(%x: f32[2, 1], [1], correction=1)
variance-to-means: half precision -> refused: accumulates
    %y = aten.var.dim(%x: f16[2, 3], [1])
variance-to-means: a biased deviation needs no factor -> aten.mean.dim, aten.sub.Tensor, aten.mul.Tensor, aten.mean.dim, aten.sqrt.default
    %y = aten.std.dim(%x: f32[2, 3], [1], false, true)
""",
)
