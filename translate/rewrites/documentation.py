"""The `Before:` / `After:` IR in rewrites' docstrings, read by tests and by `stepwell explain`."""

from __future__ import annotations

import importlib
import pkgutil
import re
from inspect import isabstract
from textwrap import dedent
from types import ModuleType
from typing import Any

import stepwell.translate.rewrites as rewrites
from stepwell.ir.rewriting import Rewrite
from stepwell.ir.snippets import module_of_ops
from stepwell.ir.text import to_text
from stepwell.translate.rules.examples import examples_of as examples_of_rule

_BLOCK = r"(?P<{}>(?:[ ]{{4}}.*(?:\n|$)|\n)+)"
_EXAMPLE = re.compile(
    r"^Before:\n" + _BLOCK.format("before") + "After:\n" + _BLOCK.format("after"), re.M
)


def module_names() -> list[str]:
    """Every module below `translate/rewrites`, as `aten.merge_views`; none is imported."""
    prefix = rewrites.__name__ + "."
    return [
        found.name.removeprefix(prefix)
        for folder in pkgutil.iter_modules(rewrites.__path__, prefix)
        if folder.ispkg
        for found in pkgutil.iter_modules(
            [f"{path}/{folder.name.rsplit('.', 1)[-1]}" for path in rewrites.__path__],
            folder.name + ".",
        )
    ]


def module_of(name: str) -> ModuleType:
    """The module that `module_names` calls so."""
    return importlib.import_module(f"{rewrites.__name__}.{name}")


def rewrites_of(module: ModuleType) -> list[type[Rewrite[Any]]]:
    """The rewrites a module defines, rules among them; bases and what holds others left out."""
    return [
        held
        for held in (*vars(module).values(), *getattr(module, "RULES", ()))
        if isinstance(held, type)
        and issubclass(held, Rewrite)
        and held.__module__ == module.__name__
        and isinstance(getattr(held, "name", None), str)
        and not isabstract(held)
    ]


def examples_of(module: ModuleType) -> list[tuple[str, str]]:
    """The (before, after) texts of a module's docstring, or of each of its rules."""
    if rules := getattr(module, "RULES", ()):
        return [example for rule in rules for example in examples_of_rule(rule)]
    text = module.__doc__ or ""
    return [_complete(dedent(m["before"]), dedent(m["after"])) for m in _EXAMPLE.finditer(text)]


def _complete(before: str, after: str) -> tuple[str, str]:
    """Both as whole modules: of ops alone, one takes what the other takes."""
    if "func.func" in before:
        return before, after
    first = module_of_ops(before)
    (method,) = first.body.block.ops
    taken = {value.name_hint or "": value.type for value in method.regions[0].block.args}
    return to_text(first) + "\n", to_text(module_of_ops(after, taken)) + "\n"
