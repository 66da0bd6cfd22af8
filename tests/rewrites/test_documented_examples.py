"""Every rewrite does what its docstring shows, and what it writes computes what it replaced."""

import re
from types import ModuleType
from typing import Any

import pytest
from xdsl.dialects.builtin import ModuleOp

from stepwell.ir.core import WeightOp
from stepwell.ir.rewriting import Rewrite, run_rewrites
from stepwell.ir.text import parse_module, structurally_equal, to_text
from stepwell.ir.types import WeightAttr
from stepwell.translate.rewrites.documentation import (
    examples_of,
    module_names,
    module_of,
    rewrites_of,
)
from stepwell.translate.rules.examples import examples_of as examples_of_rule

NAMES = module_names()


def without_digests(module: ModuleOp) -> ModuleOp:
    """Derived weights named by their recipe alone: `w#transpose.6b771fc4db64` is `w#transpose`."""
    for op in module.walk():
        if isinstance(op, WeightOp):
            key = re.sub(r"[#.][0-9a-f]{12}$", "", op.key.data)
            op.properties["key"] = WeightAttr(key)
    return module


def cases_of(module: ModuleType) -> list[tuple[list[Rewrite[Any]], str, str]]:
    """(rewrites, before, after): a rule has examples of its own, other rewrites share a file's."""
    if rules := getattr(module, "RULES", ()):
        return [([rule()], *example) for rule in rules for example in examples_of_rule(rule)]
    rewrites = [rewrite() for rewrite in rewrites_of(module)]
    return [(rewrites, *example) for example in examples_of(module)] if rewrites else []


@pytest.mark.parametrize("name", NAMES)
def test_the_documented_before_becomes_the_documented_after(name: str, apply: Any):
    for rewrites, before, after in cases_of(module_of(name)):
        done = apply(before, *rewrites)
        assert done.count > 0, done.reasons
        wanted = without_digests(parse_module(after))
        found = without_digests(done.program.module.clone())
        assert structurally_equal(found, wanted), to_text(found)
        assert run_rewrites(done.program, rewrites, done.history) == 0, "it rewrites its own result"


@pytest.mark.parametrize("name", NAMES)
def test_a_rewrite_is_named_as_its_file_and_has_an_example(name: str):
    module = module_of(name)
    found = rewrites_of(module)
    folder, file = name.split(".")
    for rewrite in found:
        spelled = rewrite.name.removesuffix(f"-to-{folder}")
        assert rewrite.__name__.lower() == spelled.replace("-", "")
        assert len(found) > 1 or spelled == file.replace("_", "-")
    if found:
        assert examples_of(module), "there is no Before: / After: in the docstring"
