"""What values can be: one engine that evaluates meanings over sets of numbers, for every target.

`Values` asks what an element of a value can be, through the whole program. What it answers is an
`Interval` (`intervals.py`), or a `Proof` that no element is infinite or NaN. Both hold for every
input that the program admits. `trusting.py` assumes more, and can only refuse.
"""

from stepwell.translate.range_analysis.analysis import (
    Values,
    interval,
    is_away_from_zero,
    is_bounded,
    is_finite,
    is_never_nan,
    most,
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
    "most",
    "values_of",
]
