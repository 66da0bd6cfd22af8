"""What CMSIS-NN's layout operators cost, in elements moved: what decisions compare.

`arm_transpose_s8` copies byte by byte where the last axis moves; a call of the runtime beside it
takes as long as some hundred bytes. No device has been measured: only ratios of sizes decide.
"""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN_SIZE = 64
"""What a symbolic size counts as."""


@dataclass(frozen=True)
class CopyCost:
    """A call, and each element that it copies."""

    call: float
    element: float


TRANSPOSE = CopyCost(call=100.0, element=1.0)
