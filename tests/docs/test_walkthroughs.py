"""The diffs in CONTRIBUTING apply to this tree, and what comes of them does what is said.

The diff that declares `aten.cosh` is applied to a tree from which all that is declared is deleted.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import stepwell

ROOT = Path(__file__).resolve().parents[2]
DIFFS = re.findall(
    r"^```diff\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M | re.S
)
PATHS = re.compile(r"^\+\+\+ b/(\S+)$", re.M)
DECLARED = {
    "dialects/scalar_semantics.py": ("    cosh,\n", '    cosh: "aten.cosh.default",\n'),
    "translate/lowerings/tosa/curves.py": ('    "aten.cosh.default": _cosh,\n',),
}
TRIED = """
import torch
import stepwell
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import run_rewrites
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.tosa.integers import functions
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

class Cosh(torch.nn.Module):
    def forward(self, x):
        return torch.cosh(x)

numbers = [0.0, -0.0, 1e-40, 0.3, -2.5, 20.0, 88.9, -89.3, 90.0, 3e38]
x = torch.tensor([*numbers, float("nan"), float("inf"), -float("inf")])
exported = torch.export.export(Cosh(), (x,))
for target in ("xnnpack", "tosa-1.0+fp", "cortex-m55"):
    (found,) = stepwell.lower(exported, target).run(x)
    torch.testing.assert_close(found, torch.cosh(x), rtol=1e-6, atol=0, equal_nan=True)

text = '''
func.func @forward(%x: tensor<4x!quant.uniform<i8:f32, 0.05>>)
    -> tensor<4x!quant.uniform<i8:f32, 3.0>> {
  %a = quant.dcast %x : tensor<4x!quant.uniform<i8:f32, 0.05>> to tensor<4xf32>
  %c = aten.cosh.default(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %y = quant.qcast %c : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 3.0>>
  func.return %y : tensor<4x!quant.uniform<i8:f32, 3.0>>
}
'''
program = Program.parse(text)
x = torch.tensor([-128, -1, 0, 127], dtype=torch.int8)
expected = program.run(x)[0]
assert run_rewrites(program, [step(functions.int8_function)]) == 1
assert "tosa.table" in str(program) and torch.equal(program.run(x)[0], expected)

rounded = f"%y = aten.round.default(%x) : ({T}) -> {T}"
names, found, x = ops(rounded, lower_elementwise.RULES)
assert names == ["xnnpack.round"] and torch.equal(found, x.round())
"""


def test_a_rule_an_op_and_a_node_are_what_the_walkthroughs_say(tmp_path: Path) -> None:
    copy = tmp_path / "tree"
    for folder in ("ir", "dialects", "translate", "backends", "src"):
        skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=skipped)
    for file, lines in DECLARED.items():
        text = (copy / file).read_text(encoding="utf-8")
        for line in lines:
            assert line in text
            text = text.replace(line, "")
        (copy / file).write_text(text, encoding="utf-8")
    for diff in DIFFS:
        subprocess.run(["git", "apply", "-"], cwd=copy, input=diff, text=True, check=True)
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    subprocess.run([sys.executable, "-c", TRIED], cwd=tmp_path, env=environment, check=True)


@pytest.mark.parametrize(("diff", "files", "lines"), [(0, 1, 8), (1, 1, 4), (2, 2, 6)])
def test_a_walkthrough_is_as_short_as_it_says(diff: int, files: int, lines: int) -> None:
    added = [line for line in DIFFS[diff].splitlines() if re.match(r"\+(?!\+\+)\s*\S", line)]
    assert len(PATHS.findall(DIFFS[diff])) == files
    assert len(added) <= lines


def test_the_first_example_of_the_readme_is_what_lowering_makes() -> None:
    before, after = (
        (ROOT / "README.md").read_text().split("```text\n")[1].split("```")[0].split("\n\n")
    )
    norm = torch.nn.LayerNorm(8)
    torch.nn.init.uniform_(norm.weight)
    torch.nn.init.uniform_(norm.bias)
    model = torch.nn.Sequential(norm, torch.nn.Linear(8, 16), torch.nn.GELU()).eval()
    program = stepwell.from_exported_program(torch.export.export(model, (torch.rand(1, 4, 8),)))
    lowered = stepwell.lower(program, "xnnpack")
    assert re.findall(r"aten\.\w+", before) == re.findall(r"= (aten\.\w+)", str(program))
    made = re.findall(r"= (xnnpack\.\w+)", str(lowered.program))
    assert made == ["xnnpack.delegate", *re.findall(r"xnnpack\.\w+", after)]
    for weight in re.findall(r'<"[wb]?(.*?)"', after):
        assert weight in str(lowered.program)
