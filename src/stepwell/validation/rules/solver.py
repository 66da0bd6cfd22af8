"""Import the solver z3 on the first proof; the extra `.[prove]` installs it."""

from typing import Any

from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.ir.diagnostics import StepwellError


class _Solver(OnDemand):
    def __getattr__(self, attribute: str) -> Any:
        try:
            return super().__getattr__(attribute)
        except ImportError as error:
            raise StepwellError(
                "z3, which proves rules, is not installed",
                help="pip install 'stepwell[prove]'",
            ) from error


z3 = _Solver("z3")
