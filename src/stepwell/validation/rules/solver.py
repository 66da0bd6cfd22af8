"""The solver, imported on the first proof; the extra `.[prove]` installs it."""

from __future__ import annotations

import importlib
from typing import Any

from stepwell.ir.diagnostics import StepwellError


class _Solver:
    """z3, imported on the first access."""

    def __getattr__(self, name: str) -> Any:
        try:
            module = importlib.import_module("z3")
        except ImportError as error:
            raise StepwellError(
                "z3 is not installed, and proves rules", help="pip install 'stepwell[prove]'"
            ) from error
        return getattr(module, name)


z3 = _Solver()
