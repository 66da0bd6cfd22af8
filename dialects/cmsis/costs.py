"""What CMSIS-NN's layout operators cost.

`arm_transpose_s8` copies byte by byte where the last axis moves; a call of the runtime beside it
takes as long as some hundred bytes. No device has been measured: ratios of sizes decide.
"""

from __future__ import annotations

from stepwell.ir.axes.layout_cost import LayoutCost

LAYOUT = LayoutCost(op=100, in_place=0, unknown_size=64)
"""Where only axes of size 1 move, a view stands in the transpose's place."""
