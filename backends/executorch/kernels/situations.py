"""Names of the situations in which a kernel is tried, for `kernel_dtypes.py`."""

from __future__ import annotations

NEGATIVE, EXTREME, SPECIAL = "negative numbers", "large numbers", "special numbers"
"""Possible contents of a tensor; the actual contents are dynamic."""

SCALAR, EMPTY, BROADCAST = "a tensor without axes", "an empty tensor", "shapes that broadcast"
EMPTY_RESULT, RANK = "an empty result", "rank {}"
"""Possible shapes."""

FRACTION, BELOW, BEYOND = "a fraction", "a number below 0", "a number above 7"
"""Possible values of a number argument."""
