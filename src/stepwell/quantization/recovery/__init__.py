"""Cures of what quantization loses: other weights on the same grids, no operator added."""

from stepwell.quantization.recovery.recover import CURES, cured

__all__ = ["CURES", "cured"]
