"""Every rewrite does what its docstring shows, and what it writes computes what it replaced."""

from types import ModuleType
from typing import Any

import pytest

from stepwell.ir.rewriting import run_rewrites
from stepwell.ir.text import parse_module, structurally_equal, to_text
from stepwell.translate.rewrites.documentation import (
    Documented,
    documented_examples,
    examples_of,
    rewrite_modules,
    rewrites_of,
)

EXAMPLES = documented_examples()
MODULES = [module for module in rewrite_modules() if rewrites_of(module)]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.file)
def test_the_documented_before_becomes_the_documented_after(example: Documented, apply: Any):
    done = apply(example.before, *[rewrite() for rewrite in example.rewrites])
    assert done.count > 0, done.reasons
    wanted = parse_module(example.after)
    assert structurally_equal(done.program.module, wanted), to_text(done.program.module)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.file)
def test_a_rewrite_finds_nothing_more_in_what_it_wrote(example: Documented, apply: Any):
    rewrites = [rewrite() for rewrite in example.rewrites]
    once = apply(example.before, *rewrites)
    assert run_rewrites(once.program, rewrites, once.history) == 0


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__.rsplit(".", 1)[-1])
def test_a_rewrite_is_named_as_its_file_and_has_an_example(module: ModuleType):
    file = module.__name__.rsplit(".", 1)[-1]
    found = rewrites_of(module)
    for rewrite in found:
        assert rewrite.__name__.lower() == rewrite.name.replace("-", "")
    if len(found) == 1:
        assert found[0].name == file.replace("_", "-")
    assert examples_of(module), f"{file}.py has no Before: / After: in its docstring"


def test_names_of_rewrites_are_distinct():
    names = [rewrite.name for module in MODULES for rewrite in rewrites_of(module)]
    assert len(names) == len(set(names))
