"""Examples of rewrites, before and after, for tests and the reference pages.

An example is in the docstring of a rewrite's file, in the text of a rule, or is a lowering's sample
call.
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from inspect import isabstract
from textwrap import dedent
from types import ModuleType
from typing import Any, cast

from stepwell.ir.rewriting.rewrite import Rewrite
from stepwell.ir.syntax.snippets import module_of_ops
from stepwell.ir.syntax.text import to_text
from stepwell.translate.lowerings import samples
from stepwell.translate.lowerings.lowering import Lowering
from stepwell.translate.passes import pass_module_names
from stepwell.translate.rules import examples

_BLOCK = r"(?P<{}>(?:[ ]{{4}}.*(?:\n|$)|\n)+)"
_EXAMPLE = re.compile(
    r"^Before:\n" + _BLOCK.format("before") + "After:\n" + _BLOCK.format("after"), re.M
)


def module_names() -> list[str]:
    """List every module that defines passes, such as `views.merge_views`, without importing any.

    The name of a module below `rewrites` or `lowerings` is relative to these, any other name is
    relative to `stepwell.translate`: `canonicalize.sums`.
    """
    return list(_modules())


@cache
def _modules() -> dict[str, str]:
    """Return the full name of each of `module_names`."""
    found: dict[str, str] = {}
    for full, is_package in pass_module_names():
        root, *rest = full.split(".")[2:]
        is_relative = root in ("rewrites", "lowerings")
        if not (is_package or full.endswith(".pipeline") or (is_relative and len(rest) == 1)):
            found[".".join(rest if is_relative else (root, *rest))] = full
    return found


def module_of(name: str) -> ModuleType:
    """Import the module that has this name in `module_names`."""
    return importlib.import_module(_modules()[name])


def rewrites_of(module: ModuleType) -> list[type[Rewrite[Any]]]:
    """Return the rewrites that a module defines, including rules, without base classes."""
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
    """Return the (before, after) texts of a module's docstring, or of each of its rules."""
    if rules := getattr(module, "RULES", ()):
        return [example for rule in rules for example in examples_of_rule(rule)]
    text = module.__doc__ or ""
    return [_complete(dedent(m["before"]), dedent(m["after"])) for m in _EXAMPLE.finditer(text)]


def examples_of_rule(rule: type[Rewrite[Any]]) -> list[tuple[str, str]]:
    """Return the (before, after) texts of a rule, or of a lowering's sample."""
    if issubclass(rule, Lowering):
        return samples.examples_of(rule)
    return examples.examples_of(cast(Any, rule))


def _complete(before: str, after: str) -> tuple[str, str]:
    """Complete both texts to whole modules; texts that consist of ops get the same arguments."""
    if "func.func" in before:
        return before, after
    first = module_of_ops(before)
    (method,) = first.body.block.ops
    taken = {value.name_hint or "": value.type for value in method.regions[0].block.args}
    return to_text(first) + "\n", to_text(module_of_ops(after, taken)) + "\n"
