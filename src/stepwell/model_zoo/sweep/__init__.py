"""`stepwell sweep`: models × targets × options; each combination is a row that is computed once."""

from stepwell.model_zoo.sweep.driver import Sweep, sweep
from stepwell.model_zoo.sweep.jobs import Limits, Variant
from stepwell.model_zoo.sweep.rows import Row

__all__ = ["Limits", "Row", "Sweep", "Variant", "sweep"]
