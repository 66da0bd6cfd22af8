"""Semantics of TOSA operators: `rules` registers all of the interpreter's rules.

Integer, data movement and block-scaled operators are exact; floating-point ones are torch's, within
the specification's bounds. Values at run time are: a tensor of the same dtype if torch has it;
codes for element types that torch lacks (int4 in int8, int48 in int64, fp6, fp4 and mxint8 in
uint8); a tuple of ints for `!tosa.shape`; `BlockScaled` for a tensor of a block-scaled type.
"""

from stepwell.dialects.tosa.meaning.values import BlockScaled

__all__ = ["BlockScaled"]
