"""Every rewrite does what its docstring shows, and what it writes computes what it replaced."""

import re
from types import ModuleType
from typing import Any

import pytest
import torch
from printed_ops import text_of_ops
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from stepwell.ir.core import WeightOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Rewrite, run_rewrites
from stepwell.ir.syntax.inline_values import take_values, with_values
from stepwell.ir.syntax.text import parse_module, structurally_equal
from stepwell.ir.types import WeightAttr
from stepwell.ir.weights import WeightStore
from stepwell.translate.lowerings.lowering import Lowering
from stepwell.translate.rewrites.documentation import (
    examples_of,
    examples_of_rule,
    module_names,
    module_of,
    rewrites_of,
)

NAMES = module_names()


def is_as_shown(found: Program, wanted: ModuleOp) -> bool:
    """Whether a program is what an example shows.

    Constants that the example spells out have those elements; derived weights are named by their
    recipe alone: `w#transpose.6b771fc4db64` is `w#transpose`. Where weights stand says nothing.
    """
    module = found.module.clone()
    for made, shown in zip(weights_in_front(module), weights_in_front(wanted), strict=False):
        if "value" in shown.properties:
            expected = WeightStore()
            take_values(ModuleOp([shown.clone()]), expected)
            torch.testing.assert_close(
                found.weights.get(made.key.data), expected.get(shown.key.data), equal_nan=True
            )
            del shown.properties["value"]
            shown.properties["key"] = made.key
        for op in (made, shown):
            op.properties["key"] = WeightAttr(re.sub(r"[#.][0-9a-f]{12}$", "", op.key.data))
    return structurally_equal(module, wanted)


def weights_in_front(module: ModuleOp) -> list[WeightOp]:
    """Move each weight to the front of its method, once, in the order in which they are read."""
    (block,) = (op.body.block for op in module.ops if isinstance(op, FuncOp))
    readers = (op for op in block.walk() if not isinstance(op, WeightOp))
    values = [value for op in readers for value in op.operands]
    first: dict[tuple[str, Attribute], WeightOp] = {}
    for op in {value.owner: None for value in values if isinstance(value.owner, WeightOp)}:
        assert isinstance(op, WeightOp)
        kept = first.setdefault((op.key.data, op.result.type), op)
        if kept is not op:
            op.result.replace_all_uses_with(kept.result)
            op.detach()
    for op in reversed(first.values()):
        op.detach()
        assert block.first_op is not None, "a method returns"
        block.insert_op_before(op, block.first_op)
    return list(first.values())


def cases_of(module: ModuleType) -> list[tuple[list[Rewrite[Any]], str, str]]:
    """(rewrites, before, after): a rule has examples of its own, other rewrites share a file's."""
    if rules := getattr(module, "RULES", ()):
        return [([rule()], *example) for rule in rules for example in examples_of_rule(rule)]
    rewrites = [rewrite() for rewrite in rewrites_of(module)]
    return [(rewrites, *example) for example in examples_of(module)] if rewrites else []


def shown(program: Program) -> str:
    """A program as its example may show it."""
    (method,) = with_values(program.module, program.weights).ops
    assert isinstance(method, FuncOp)
    return text_of_ops(method)


@pytest.mark.parametrize("name", NAMES)
def test_the_documented_before_becomes_the_documented_after(name: str, apply: Any):
    for rewrites, before, after in cases_of(module_of(name)):
        done = apply(before, *rewrites)
        assert done.count > 0, done.reasons
        assert is_as_shown(done.program, parse_module(after)), shown(done.program)
        assert run_rewrites(done.program, rewrites, done.history) == 0, "it rewrites its own result"


@pytest.mark.parametrize("name", NAMES)
def test_a_rewrite_is_named_as_its_file_and_has_an_example(name: str):
    module = module_of(name)
    found = rewrites_of(module)
    file = name.rpartition(".")[2]
    for rewrite in found:
        if issubclass(rewrite, Lowering):
            continue  # It is named as its function.
        spelled = re.sub("-to-(aten|cmsis|tosa|xnnpack)$", "", rewrite.name)
        assert rewrite.__name__.lower() == spelled.replace("-", "")
        assert len(found) > 1 or spelled == file.replace("_", "-")
    if found:
        assert examples_of(module), "there is no Before: / After: in the docstring"
