"""Result types of TOSA's operators, and the requirements on their operands (ERROR_IFs of the spec).

Importing this package registers an inference rule for every operator, so that `verify` checks a
program before the reference model runs it, which terminates the process on some invalid graphs.
"""

from stepwell.dialects.tosa.shapes import block_scaled, control, elementwise, layout, windows

__all__ = ["block_scaled", "control", "elementwise", "layout", "windows"]
