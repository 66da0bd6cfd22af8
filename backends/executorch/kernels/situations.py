"""What a kernel is tried with beyond usual calls, as `kernel_dtypes.py` names it."""

from __future__ import annotations

NEGATIVE, EXTREME, SPECIAL = "negative numbers", "large numbers", "special numbers"
"""What a tensor may hold; what it does hold is known only at run time."""

SCALAR, EMPTY, BROADCAST = "a tensor without axes", "an empty tensor", "shapes that broadcast"
EMPTY_RESULT, RANK = "an empty result", "rank {}"
"""What shapes may be."""

FRACTION, BELOW, BEYOND = "a fraction", "a number below 0", "a number above 7"
"""What an argument that is a number may be."""

SMALL = 7
"""Every integer type can be shifted so far."""
