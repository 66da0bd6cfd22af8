"""`stepwell.accuracy`: which stage loses accuracy, which layer, why, and how to get it back."""

from stepwell.attributing.measure import accuracy
from stepwell.attributing.result import Accuracy

__all__ = ["Accuracy", "accuracy"]
