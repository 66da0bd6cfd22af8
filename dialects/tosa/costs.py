"""What TOSA's layout operators cost: nothing says which engine runs them, so fewer come first."""

from __future__ import annotations

from stepwell.ir.axes.layout_cost import LayoutCost

LAYOUT = LayoutCost(op=1_000_000, in_place=0.25, unknown_size=64)
"""An operator weighs more than the elements of any tensor; between as many, elements decide."""
