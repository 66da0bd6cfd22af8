"""A gelu of halves stands between two converts; no other is touched."""

from rewrite_cases import cases

from stepwell.translate.rewrites.xnnpack.floats.widen_gelu import RULES

test_widen_gelu = cases(
    RULES,
    """
halves are widened and rounded once -> xnnpack.convert, xnnpack.gelu, xnnpack.convert
    - %y = xnnpack.gelu(%x: f16[3, 5])
    - %y = xnnpack.gelu(%x: f16[2, 3, 4, 5])
    - %y = xnnpack.gelu(%x: f16[7])
sizes may be symbolic -> applied once
    %y = xnnpack.gelu(%x: f16[n, 4])
single precision -> unchanged
    %y = xnnpack.gelu(%x: f32[3, 5])
""",
)
