"""Passes and patterns of xDSL are passes of our pipelines, and of `--load`."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.transforms import get_all_passes

import stepwell
from stepwell.dialects import aten

from .commands import Commands

OWN = stepwell.PIPELINES["xnnpack"]
X = torch.tensor([1.0, -1.0, 2.0])
NAMES = """
apply-pdl canonicalize constant-fold-interp control-flow-hoist convert-scf-to-cf cse dce
empty-tensor-to-alloc-tensor expand-math-to-polynomials licm lift-arith-to-linalg
linalg-fuse-multiply-add linalg-generalize-named-ops loop-hoist-memref lower-affine
reconcile-unrealized-casts scf-for-loop-flatten scf-for-loop-range-folding scf-for-loop-unroll
shape-inference varith-fuse-repeated-operands
""".split()
"""Passes of xDSL that have no needed options; most find nothing to do in a program of ours."""


class Twice(nn.Module):
    """The same two operators twice."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) * 2 + torch.relu(x) * 2


class DropRelu(RewritePattern):
    """A wrong pattern."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: aten.ReluDefault, rewriter: PatternRewriter) -> None:
        rewriter.replace(op, [], [op.operands[0]])


def lowered(pipeline: Any, **options: Any) -> stepwell.Lowered:
    exported = torch.export.export(Twice(), (X,))
    return stepwell.lower(exported, "xnnpack", pipeline, **options)


def applied(found: stepwell.Lowered, name: str) -> int:
    return next(step.applied for step in found.report.steps if step.name == name)


@pytest.mark.parametrize("name", NAMES)
def test_a_pass_of_xdsl_runs_in_a_pipeline(name: str) -> None:
    step: ModulePass = get_all_passes()[name]()()
    found = lowered(OWN.after("normalize", step))
    assert torch.equal(found.run(X)[0], torch.tensor([4.0, 0.0, 8.0]))
    assert applied(found, name) == (name == "cse")


def test_a_pattern_counts_what_it_changes_and_is_checked() -> None:
    pipeline = OWN.before("normalize", DropRelu)
    assert applied(lowered(pipeline), "drop-relu") == 2
    with pytest.raises(stepwell.StepwellError, match=r"drop-relu: aten\.mul\.Scalar: not equal"):
        lowered(pipeline, check=True)


class Fails(ModulePass):
    """A pass that takes no program."""

    name = "fails"

    def apply(self, ctx: Any, op: Any) -> None:
        raise ValueError("no")


def test_a_pass_of_xdsl_that_fails_is_named_with_its_own_line() -> None:
    with pytest.raises(stepwell.StepwellError, match="fails in apply, ValueError: no") as error:
        lowered(OWN.before("normalize", Fails))
    (problem,) = error.value.problems
    assert f"{__file__}:" in str(problem.help) and "Refusal" not in str(problem.help)


def test_passes_of_xdsl_in_a_plug_in_are_named(command: Commands) -> None:
    command.write(
        "mine.py",
        "from xdsl.passes import ModulePass\n"
        "from xdsl.pattern_rewriter import RewritePattern, op_type_rewrite_pattern\n"
        "from stepwell.dialects import aten\n"
        "class Nothing(ModulePass):\n"
        "    name = 'do-nothing'\n"
        "    def apply(self, ctx, op): pass\n"
        "class DropRelu(RewritePattern):\n"
        "    @op_type_rewrite_pattern\n"
        "    def match_and_rewrite(self, op: aten.ReluDefault, rewriter):\n"
        "        rewriter.replace_op(op, [], [op.operands[0]])\n",
    )
    command.write(
        "x.mlir",
        "func.func @forward(%x: tensor<3xf32>) -> tensor<3xf32> {\n"
        "  %y = aten.relu.default(%x) : (tensor<3xf32>) -> tensor<3xf32>\n"
        "  func.return %y : tensor<3xf32>\n}\n",
    )
    text = command("opt x.mlir --load mine.py -p do-nothing,drop-relu").out
    assert "relu" not in text and "func.return %x" in text


def test_options_of_a_pass_of_xdsl_are_taken_by_name(command: Commands) -> None:
    command.write(
        "mine.py",
        "from dataclasses import dataclass\n"
        "from xdsl.passes import ModulePass\n"
        "from xdsl.pattern_rewriter import *\n"
        "from stepwell.dialects import aten\n"
        "@dataclass\n"
        "class Drop(RewritePattern):\n"
        "    drops: bool\n"
        "    @op_type_rewrite_pattern\n"
        "    def match_and_rewrite(self, op: aten.ReluDefault, rewriter):\n"
        "        if self.drops: rewriter.replace_op(op, [], [op.operands[0]])\n"
        "@dataclass(frozen=True)\n"
        "class DropIf(ModulePass):\n"
        "    name = 'drop-if'\n"
        "    drops: bool\n"
        "    def apply(self, ctx, op):\n"
        "        PatternRewriteWalker(Drop(self.drops)).rewrite_module(op)\n",
    )
    command.write(
        "x.mlir",
        "func.func @forward(%x: tensor<3xf32>) -> tensor<3xf32> {\n"
        "  %y = aten.relu.default(%x) : (tensor<3xf32>) -> tensor<3xf32>\n"
        "  func.return %y : tensor<3xf32>\n}\n",
    )
    line = "opt x.mlir --load mine.py -p drop-if"
    assert "relu" not in command(line + "{drops=true}").out
    assert "relu" in command(line + "{drops=false}").out
    assert 'requires argument "drops"' in command(line, 1).err
    edit = "--before normalize=cse,drop-if{drops=true}"
    said = command(f"lower x.mlir -t xnnpack --load mine.py {edit}").out
    assert "\ndrop-if " in said and "delegates  0" in said


def test_a_whole_lowering_refuses_functions_of_several_blocks(command: Commands) -> None:
    text = "func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> {\n  cf.br ^a\n^a:\n"
    command.write("x.mlir", text + "  func.return %x : tensor<3xf32>\n}\n")
    assert "@f has 2" in command("opt x.mlir -p lower-to-xnnpack", 1).err
    command("opt x.mlir -p lower-unary")
