"""Recovery methods for quantized accuracy: other weights on the same grids, no additional
operator.
"""

from stepwell.quantization.recovery.recover import CURES, cured

__all__ = ["CURES", "cured"]
