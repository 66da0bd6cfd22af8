"""`stepwell.accuracy`: which stage loses accuracy, which layer, why, and how to get it back."""

from stepwell.quantization.sensitivity.measure import accuracy
from stepwell.quantization.sensitivity.result import Accuracy

__all__ = ["Accuracy", "accuracy"]
