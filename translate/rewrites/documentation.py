"""Examples of rewrites, before and after, for tests and the reference pages.

An example is in the docstring of a rewrite's file, in the text of a rule, or is a lowering's sample
call.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from inspect import isabstract
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any, cast

import stepwell.translate
from stepwell.ir.rewriting.rewrite import Rewrite
from stepwell.ir.syntax.snippets import module_of_ops
from stepwell.ir.syntax.text import to_text
from stepwell.translate.lowerings import samples
from stepwell.translate.lowerings.lowering import Lowering
from stepwell.translate.rules import examples

_BLOCK = r"(?P<{}>(?:[ ]{{4}}.*(?:\n|$)|\n)+)"
_EXAMPLE = re.compile(
    r"^Before:\n" + _BLOCK.format("before") + "After:\n" + _BLOCK.format("after"), re.M
)


def module_names() -> list[str]:
    """Every module that defines passes, without importing any: `views.merge_views`.

    The name of a module below `rewrites` or `lowerings` is relative to these, any other name is
    relative to `stepwell.translate`: `canonicalize.sums`.
    """
    return [name for root in _ROOTS for name in _names_below(root)]


_ROOTS = ("rewrites", "lowerings", "canonicalize", "decompositions")
_RELATIVE = _ROOTS[:2]


def _names_below(root: str) -> Iterator[str]:
    for translate in map(Path, stepwell.translate.__path__):
        place = translate / root
        is_relative = root in _RELATIVE
        for file in sorted(place.rglob("*/*.py" if is_relative else "*.py")):
            if file.stem not in ("__init__", "pipeline"):
                base = place if is_relative else translate
                yield ".".join(file.relative_to(base).with_suffix("").parts)


def module_of(name: str) -> ModuleType:
    """The module that `module_names` calls so."""
    file = Path(*name.split(".")).with_suffix(".py")
    for place in map(Path, stepwell.translate.__path__):
        for root in _RELATIVE:
            if (place / root / file).exists():
                return importlib.import_module(f"stepwell.translate.{root}.{name}")
    return importlib.import_module(f"stepwell.translate.{name}")


def rewrites_of(module: ModuleType) -> list[type[Rewrite[Any]]]:
    """The rewrites a module defines, rules among them; bases and what holds others left out."""
    return [
        held
        for held in (*vars(module).values(), *getattr(module, "RULES", ()))
        if isinstance(held, type)
        and held.__module__ == module.__name__
        and issubclass(held, Rewrite)
        and isinstance(getattr(held, "name", None), str)
        and not isabstract(held)
    ]


def examples_of(module: ModuleType) -> list[tuple[str, str]]:
    """The (before, after) texts of a module's docstring, or of each of its rules."""
    if rules := getattr(module, "RULES", ()):
        return [example for rule in rules for example in examples_of_rule(rule)]
    text = module.__doc__ or ""
    return [_complete(dedent(m["before"]), dedent(m["after"])) for m in _EXAMPLE.finditer(text)]


def examples_of_rule(rule: type[Rewrite[Any]]) -> list[tuple[str, str]]:
    """The (before, after) texts of a rule, or of a lowering's sample."""
    if issubclass(rule, Lowering):
        return samples.examples_of(rule)
    return examples.examples_of(cast(Any, rule))


def _complete(before: str, after: str) -> tuple[str, str]:
    """Return both texts as whole modules: texts of ops alone get the same arguments."""
    if "func.func" in before:
        return before, after
    first = module_of_ops(before)
    (method,) = first.body.block.ops
    taken = {value.name_hint or "": value.type for value in method.regions[0].block.args}
    return to_text(first) + "\n", to_text(module_of_ops(after, taken)) + "\n"
