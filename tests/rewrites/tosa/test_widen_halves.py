"""`widen-rounded-halves`: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import floats

test_widen_halves = cases(
    floats,
    """
widen-rounded-halves: a mean that narrows is no op of halves -> applied 0 times
    %y = aten.mean.dim(%x: f32[2, 3], [1], false, dtype=f16)
widen-rounded-halves: the mean of an image is a pool, which sums in single precision itself -> applied 0 times
    %y = aten.mean.dim(%x: f16[1, 2, 3, 4], [2, 3], false)
""",
)
