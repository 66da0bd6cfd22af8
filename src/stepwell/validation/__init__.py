"""`stepwell check`: translation validation of every step of a lowering, and of its artifact."""

from stepwell.validation.check import check
from stepwell.validation.result import CheckResult, Finding, StepVerdict

__all__ = ["CheckResult", "Finding", "StepVerdict", "check"]
