"""`stepwell validate`: translation validation of an artifact that any flow wrote."""

from stepwell.validation.artifacts.validate import validate
from stepwell.validation.artifacts.verdict import CallDifference, Validation, Wrong

__all__ = ["CallDifference", "Validation", "Wrong", "validate"]
