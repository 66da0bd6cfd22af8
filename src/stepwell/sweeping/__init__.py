"""`stepwell sweep`: models × targets × options, each a row that is computed once."""

from stepwell.sweeping.campaign import Sweep, sweep
from stepwell.sweeping.jobs import Limits, Variant
from stepwell.sweeping.rows import Row

__all__ = ["Limits", "Row", "Sweep", "Variant", "sweep"]
