"""Cures of what quantization loses: other weights on the same grids, no operator added."""

from stepwell.curing.cure import CURES, cured

__all__ = ["CURES", "cured"]
