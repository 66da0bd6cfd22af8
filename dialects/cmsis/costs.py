"""The costs of CMSIS-NN's layout operators.

`arm_transpose_s8` copies byte by byte if the last axis moves. A call of the runtime takes as long
as copying some hundred bytes. Only ratios of sizes are used; no device was measured.
"""

from __future__ import annotations

from stepwell.ir.axes.layout_cost import LayoutCost

LAYOUT = LayoutCost(op=100, in_place=0, unknown_size=64)
"""If only axes of size 1 move, a view replaces the transpose."""
