"""Result types of TOSA's operators, and what their operands must satisfy (ERROR_IFs of the spec).

Importing this package registers an inference rule for every operator, so that `verify` checks a
program before anything reaches the reference model, which ends the process on some invalid graphs.
"""

from stepwell.dialects.tosa.shapes import block_scaled, control, elementwise, layout, windows

__all__ = ["block_scaled", "control", "elementwise", "layout", "windows"]
