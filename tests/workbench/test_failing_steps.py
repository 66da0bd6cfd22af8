"""A step that makes a mistake is named with its line, and replayed by a small text."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import stepwell
from stepwell import Rewrite
from stepwell.dialects import aten
from stepwell.ir.rewriting.failures import StepFailure
from stepwell.plugins import plugins
from stepwell.plugins.registry import REGISTRY
from stepwell.validation.reducer.reproducer import Reproducer

from .commands import Commands

STEPS = """
from dataclasses import dataclass
import torch
from stepwell import Pass, Rewrite
from stepwell.dialects import aten

class OnRelu(Rewrite):
    anchors = (aten.ReluDefault,)
    def match(self, op, program):
        return op
    def put(self, made, op, rw):
        rw.replace(op, [rw.insert(made).results[0]])

@dataclass(frozen=True)
class Raises(OnRelu):
    name = "raises"
    limit: int = 1
    def build(self, op, rw):
        if sum(isinstance(o, aten.AbsDefault) for o in op.parent.ops) >= self.limit:
            raise ValueError("no more than one")
        self.put(aten.AbsDefault.make(op.operands[0], result_types=[op.results[0].type]), op, rw)

@dataclass(frozen=True)
class Returns(OnRelu):
    name = "returns"
    def match(self, op, program):
        return True
    def build(self, op, rw):
        pass

@dataclass(frozen=True)
class Yields(OnRelu):
    name = "yields"
    def build(self, op, rw):
        yield

@dataclass(frozen=True)
class NeverEnds(OnRelu):
    name = "never-ends"
    def build(self, op, rw):
        self.put(aten.ReluDefault.make(op.operands[0], result_types=[op.results[0].type]), op, rw)

@dataclass(frozen=True)
class Breaks(OnRelu):
    name = "breaks"
    def build(self, op, rw):
        x = op.operands[0]
        self.put(aten.MmDefault.make(x, x, result_types=[op.results[0].type]), op, rw)

@dataclass(frozen=True)
class RaisesInPass(Pass):
    name = "raises-in-pass"
    def apply(self, program, history):
        return {}["nothing"]

class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
    def forward(self, x):
        for factor in range(1, 5):
            x = torch.relu(self.linear(x) * factor)
        return x

def make():
    return M(), (torch.randn(2, 3),)
"""
KINDS = {
    "raises": ("fails in build, ValueError: no more than one", 'raise ValueError("no more'),
    "returns": ("returns True from match", "it begins at"),
    "yields": ("returns the type generator from build", "it contains no `yield`"),
    "never-ends": ("times without an end", "it makes again what it matches"),
    "breaks": ("breaks the program: aten.mm.default: a and b must", "what it writes begins at"),
    "raises-in-pass": ("raises-in-pass fails in apply, KeyError", "in apply"),
}
LEFT = {"raises": 2, "raises-in-pass": 0}
"""How many ops a reproducer needs, where it is not one."""


@pytest.fixture
def steps(command: Commands) -> Iterator[str]:
    path = str((command.folder / "own_steps.py").resolve())
    command.write("own_steps.py", STEPS)
    yield path
    if path in REGISTRY.plugins:
        plugins.unload_plugin(path)


@pytest.mark.parametrize("name", KINDS)
def test_a_failing_step_is_named_replayed_and_made_small(
    name: str, steps: str, command: Commands
) -> None:
    said, help = KINDS[name]
    load = f"--load {steps}"
    err = command(f"lower {steps}:make {load} --before normalize={name}", 1).err
    assert said in err and help in err
    assert re.search(r"own_steps\.py:\d+", err.partition("help:")[2])  # Of the step.
    if name != "raises-in-pass":
        assert re.search(r"at own_steps\.py:\d+, node relu", err)  # Of the model.

    assert said in command(f"opt repro.mlir {load}", 1).err
    command(f"reduce repro.mlir {load}")
    small = Reproducer.open(Path("repro.small.mlir")).program
    assert len(list(small.method().body.block.ops)) == LEFT.get(name, 1) + 1  # And the return.
    assert said in command(f"opt repro.small.mlir {load}", 1).err


def test_a_reproducer_runs_no_file_by_itself(steps: str, command: Commands) -> None:
    command(f"lower {steps}:make --load {steps} --before normalize=breaks", 1)
    plugins.unload_plugin(steps)
    assert "which is not loaded" in command("opt repro.mlir", 1).err
    assert "breaks the program" in command("opt repro.mlir --trust", 1).err


def test_opt_writes_a_reproducer_and_reduce_takes_a_command(steps: str, command: Commands) -> None:
    command.write(
        "relus.mlir",
        "func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {\n"
        "  %a = aten.abs.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>\n"
        "  %b = aten.relu.default(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>\n"
        "  func.return %b : tensor<2x3xf32>\n"
        "}\n",
    )
    said = command(f"opt relus.mlir --load {steps} -p remove-copy,breaks", 1)
    assert "relus.mlir:3" in said.err
    assert "// step: breaks" in command.read("repro.mlir")
    command(["reduce", "relus.mlir", "--test", "grep -q aten.abs", "-o", "abs.mlir"])
    assert "aten.relu" not in command.read("abs.mlir")


def test_the_first_step_that_broke_a_program_is_blamed_not_a_later_one() -> None:
    class Leaves(Rewrite):
        """Leaves a reader in no block."""

        name = "leaves-a-reader"
        anchors = (aten.ReluDefault,)

        def match(self, op, program):  # type: ignore[no-untyped-def]
            return op

        def build(self, op, rw):  # type: ignore[no-untyped-def]
            aten.AbsDefault.make(op.operands[0], result_types=[op.results[0].type])
            rw.replace(op, [op.operands[0]])

    model = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.ReLU())
    exported = torch.export.export(model, (torch.randn(2, 3),))
    with pytest.raises(StepFailure) as error:
        stepwell.lower(exported, "xnnpack", lambda own: own.before("normalize", Leaves()))
    assert error.value.step == "leaves-a-reader"
    assert "is used by aten.abs.default, which is in no block" in str(error.value)
