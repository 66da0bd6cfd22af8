"""The costs of TOSA's layout operators: fewer operators are better, because the engine is
unknown.
"""

from __future__ import annotations

from stepwell.ir.axes.layout_cost import LayoutCost

LAYOUT = LayoutCost(op=1_000_000, in_place=0.25, unknown_size=64)
"""An operator costs more than the elements of any tensor; elements decide between equal numbers."""
