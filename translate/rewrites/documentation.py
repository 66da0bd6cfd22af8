"""The `Before:` / `After:` IR in the docstrings of rewrites: read by tests and by `stepwell explain`."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import isabstract
from textwrap import dedent
from types import ModuleType
from typing import Any

import stepwell.translate.rewrites as rewrites
from stepwell.ir.rewriting import Rewrite

_EXAMPLE = re.compile(
    r"^Before:(?P<note>[^\n]*)\n(?P<before>(?:[ ]{4}.*\n|\n)+)After:\n(?P<after>(?:[ ]{4}.*(?:\n|$)|\n)+)",
    re.M,
)


@dataclass(frozen=True)
class Documented:
    """One example of what a module's rewrites (nearly always one) do: two complete texts."""

    file: str
    rewrites: tuple[type[Rewrite[Any]], ...]
    before: str
    after: str


def rewrite_modules() -> Iterator[ModuleType]:
    """Every module below `translate/rewrites`."""
    for found in pkgutil.walk_packages(rewrites.__path__, rewrites.__name__ + "."):
        yield importlib.import_module(found.name)


def rewrites_of(module: ModuleType) -> list[type[Rewrite[Any]]]:
    """The rewrites a module defines, bases of others left out."""
    return [
        held
        for held in vars(module).values()
        if isinstance(held, type)
        and issubclass(held, Rewrite)
        and held.__module__ == module.__name__
        and hasattr(held, "name")
        and not isabstract(held)
    ]


def examples_of(module: ModuleType) -> list[tuple[str, str]]:
    """The (before, after) texts of a module's docstring."""
    text = module.__doc__ or ""
    return [(dedent(m["before"]), dedent(m["after"])) for m in _EXAMPLE.finditer(text)]


def documented_examples() -> list[Documented]:
    """Every example of every module that has rewrites."""
    return [
        Documented(module.__name__.rsplit(".", 1)[-1], tuple(found), before, after)
        for module in rewrite_modules()
        if (found := rewrites_of(module))
        for before, after in examples_of(module)
    ]
