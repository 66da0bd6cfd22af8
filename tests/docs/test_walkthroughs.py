"""The diffs in CONTRIBUTING apply to this tree, and what comes of them does what is said."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIFFS = re.findall(
    r"^```diff\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M | re.S
)
PATHS = re.compile(r"^\+\+\+ b/(\S+)$", re.M)
TRIED = """
import torch
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import run_rewrites
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.tosa import functions
from stepwell.translate.canonicalize import neutral_arithmetic
from stepwell.translate.rewrites.xnnpack.nodes import lower_elementwise
from stepwell.translate.rules.examples import examples_of

T = "tensor<2x3xf32>"

def ops(lines, rules):
    text = f"func.func @forward(%x: {T}) -> {T} {{ {lines} func.return %y : {T} }}"
    program = Program.parse(text)
    assert run_rewrites(program, [r() if isinstance(r, type) else r for r in rules]) == 1
    x = torch.tensor([[0.5, 1.5, -0.5], [2.25, -7.0, 2.5]])
    return [op.name for op in program.method().body.block.ops][:-1], program.run(x)[0], x

twice = f"%a = aten.neg.default(%x) : ({T}) -> {T} %y = aten.neg.default(%a) : ({T}) -> {T}"
(rule,) = (r for r in neutral_arithmetic.RULES if r.name == "remove-double-negation")
names, found, x = ops(twice, [rule])
assert names == [] and torch.equal(found, x)
assert "func.return %x" in examples_of(rule)[0][1]

degrees = f"%y = aten.rad2deg.default(%x) : ({T}) -> {T}"
names, found, x = ops(degrees, [step(functions.function)])
assert names[-1] == "tosa.mul" and torch.equal(found, torch.rad2deg(x))

rounded = f"%y = aten.round.default(%x) : ({T}) -> {T}"
names, found, x = ops(rounded, lower_elementwise.RULES)
assert names == ["xnnpack.round"] and torch.equal(found, x.round())
"""


def test_a_rule_an_op_and_a_node_are_what_the_walkthroughs_say(tmp_path: Path) -> None:
    copy = tmp_path / "tree"
    for folder in ("ir", "dialects", "translate", "backends", "src"):
        skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=skipped)
    for diff in DIFFS:
        subprocess.run(["git", "apply", "-"], cwd=copy, input=diff, text=True, check=True)
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    subprocess.run([sys.executable, "-c", TRIED], cwd=tmp_path, env=environment, check=True)


@pytest.mark.parametrize(("diff", "files", "lines"), [(0, 1, 8), (1, 1, 1), (2, 2, 6)])
def test_a_walkthrough_is_as_short_as_it_says(diff: int, files: int, lines: int) -> None:
    added = [line for line in DIFFS[diff].splitlines() if re.match(r"\+(?!\+\+)\s*\S", line)]
    assert len(PATHS.findall(DIFFS[diff])) == files
    assert len(added) <= lines
