"""Every rewrite does what its docstring shows, and what it writes computes what it replaced."""

import re
from typing import Any

import pytest
from xdsl.dialects.builtin import ModuleOp

from stepwell.ir.core import WeightOp
from stepwell.ir.rewriting import run_rewrites
from stepwell.ir.text import parse_module, structurally_equal, to_text
from stepwell.ir.types import WeightAttr
from stepwell.translate.rewrites.documentation import (
    examples_of,
    module_names,
    module_of,
    rewrites_of,
)

NAMES = module_names()


def without_digests(module: ModuleOp) -> ModuleOp:
    """Derived weights named by their recipe alone: `w#transpose.6b771fc4db64` is `w#transpose`."""
    for op in module.walk():
        if isinstance(op, WeightOp):
            key = re.sub(r"[#.][0-9a-f]{12}$", "", op.key.data)
            op.properties["key"] = WeightAttr(key)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_the_documented_before_becomes_the_documented_after(name: str, apply: Any):
    module = module_of(name)
    rewrites = [rewrite() for rewrite in rewrites_of(module)]
    for before, after in examples_of(module) if rewrites else ():
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
