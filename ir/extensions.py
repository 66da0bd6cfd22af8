"""Functions of packages that the core calls but does not import, found by name.

The core (lowering, targets, pipelines) imports no package that is built on it.
`stepwell/__init__.py` states which module provides each function. The module is imported when the
function is first needed; if the package is absent, the call is refused.
"""

from __future__ import annotations

import importlib
from typing import Any

from stepwell.ir.diagnostics import StepwellError

_HOMES: dict[str, str] = {}


def provide(name: str, home: str) -> None:
    """State that `home` (`module:attribute`) provides the function `name`."""
    _HOMES[name] = home


def extension(name: str) -> Any:
    """Return the function `name` of the package that provides it.

    Raises:
        StepwellError: no package provides it, or the package is not installed.
    """
    module, _, attribute = _HOMES.get(name, "").partition(":")
    try:
        found = importlib.import_module(module) if module else None
    except ModuleNotFoundError as error:
        if not module.startswith(error.name or "?"):
            raise
        found = None
    if found is None:
        raise StepwellError(
            f"no installed package provides {name!r}",
            help=f"install the package that provides it{module and f' ({module})'}",
        )
    return getattr(found, attribute)
