"""The packages that define passes: rewrites, lowerings, decompositions, canonicalization."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

PACKAGES = ("canonicalize", "decompositions", "lowerings", "rewrites")
"""Packages below `stepwell.translate`."""


def pass_module_names() -> Iterator[tuple[str, bool]]:
    """Yield the name of every module that may define passes, and whether it is a package.

    Packages come first, in alphabetical order. No other module is imported.
    """
    for name in PACKAGES:
        package = importlib.import_module(f"stepwell.translate.{name}")
        yield package.__name__, True
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield info.name, info.ispkg


def pass_modules() -> Iterator[ModuleType]:
    """Import every module that may define passes, in the order of `pass_module_names`."""
    return (importlib.import_module(name) for name, _ in pass_module_names())


def folder_of(module: str) -> str | None:
    """Return the subfolder of `PACKAGES` that a module is in, else its package, else None.

    `stepwell.translate.rewrites.views.expands` is in `views`; a module elsewhere is in None.
    """
    parts = module.split(".")
    if parts[1:2] != ["translate"] or parts[2:3] == [] or parts[2] not in PACKAGES:
        return None
    return parts[3] if len(parts) > 4 else parts[2]
