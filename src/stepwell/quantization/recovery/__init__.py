"""Recovery methods for quantized accuracy: new weights on the same grids, no operator added."""

from stepwell.quantization.recovery.recover import CURES, cured

__all__ = ["CURES", "cured"]
