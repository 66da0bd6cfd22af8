"""`normalize-pooling`: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import pools

test_normalize_pooling = cases(
    pools,
    """
normalize-pooling: indices that are used keep the op -> refused: indices
    %a, %y = aten.max_pool2d_with_indices.default(%x: f32[1, 1, 4, 4], [2, 2])
    return %y
normalize-pooling: a missing stride is the kernel s size -> aten.avg_pool2d.default
    %y = aten.avg_pool2d.default(%x: f32[1, 1, 4, 6], [2, 3])
""",
)
