"""Range analysis: one engine evaluates the semantics of ops on intervals, for every target.

`Values` computes the possible elements of a value, through the whole program. The result is an
`Interval` (`interval.py`), or a `Proof` that no element is infinite or NaN. Both hold for every
input that the program admits. `assumptions.py` assumes more, and can only refuse.
"""

from stepwell.translate.range_analysis.analysis import (
    Values,
    interval,
    is_away_from_zero,
    is_bounded,
    is_finite,
    is_never_nan,
    is_summable,
    is_within,
    keeps_denormals,
    most,
    sums_are_finite,
    values_of,
)
from stepwell.translate.range_analysis.interval import ANY, Interval

__all__ = [
    "ANY",
    "Interval",
    "Values",
    "interval",
    "is_away_from_zero",
    "is_bounded",
    "is_finite",
    "is_never_nan",
    "is_summable",
    "is_within",
    "keeps_denormals",
    "most",
    "sums_are_finite",
    "values_of",
]
