"""Budgets: a build fails where a program costs more than its committed file allows."""

import pytest
import torch
from eager import lower

import stepwell
from stepwell.integrations.executorch.stock import stock_pte

from .commands import Commands

WHOLE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.second(self.first(x).tanh())

def make():
    torch.manual_seed(0)
    return Net().eval(), (torch.ones(2, 8),)
"""
SPLIT = WHOLE.replace(".tanh()", ".cumprod(1)")


@pytest.fixture
def net(command: Commands) -> Commands:
    command.write("net.py", WHOLE)
    return command


def test_a_delegate_that_splits_fails_the_build(net: Commands) -> None:
    net("budget net.py:make --write")
    written = net.read("stepwell-budget.toml")
    assert 'model = "net.py:make"\ntarget = "xnnpack"\ndelegates = 1\noutside = 0\n' in written
    net("budget")
    net.write("net.py", SPLIT)
    said = net("budget --json over.json", 1).out
    assert "✗ delegates" in said and "outside: aten." in said
    (found,) = net.json("over.json")["result"]["programs"]
    assert found["passed"]["delegates"] == [1, 2]
    net("budget --write")
    net("budget")


def test_the_file_of_any_flow_has_a_budget(command: Commands) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))
    exported = torch.export.export(model.eval(), (torch.ones(2, 8),))
    stepwell.lower(exported, "xnnpack").save("m.pte")
    command("budget m.pte --write")
    (command.folder / "m.pte").write_bytes(stock_pte(exported))
    assert "✗ outside" in command("budget m.pte", 1).out


@pytest.mark.usefixtures("forked")
@pytest.mark.slow
def test_the_latency_is_held_against_executorchs_own_flow(net: Commands) -> None:
    net("budget net.py:make --write --latency --json b.json")
    (found,) = net.json("b.json")["result"]["programs"]
    assert found["figures"]["latency_ratio"] > 0
    assert "latency_ratio = " in net.read("stepwell-budget.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("delegates = 1", "unknown keys delegates"),
        ("[[program]]\ndelegates = 1", "names no model"),
        ('[[program]]\nmodel = "m"\ndelegate = 1', "delegate = 1"),
        ('[[program]]\nmodel = "m"\ndelegates = "one"', "delegates = 'one'"),
        ("[[program", "is not valid TOML"),
        ('[[program]]\nmodel = "m.pte"\nlatency_ratio = 1.0', "latency_ratio needs a program"),
    ],
)
def test_what_is_no_budget_is_said(text: str, said: str, command: Commands) -> None:
    command.write("stepwell-budget.toml", text)
    assert said in command("budget", 1).err


def test_a_test_of_ones_own_holds_a_lowering_to_a_budget() -> None:
    lowered = lower(torch.nn.Linear(8, 8), torch.ones(2, 8))
    assert stepwell.budget(lowered, delegates=1, outside=0).bytes == len(lowered.to_pte())
    with pytest.raises(stepwell.StepwellError, match=r"bytes is(.|\n)*arena is(.|\n)*report"):
        stepwell.budget(lowered, bytes=10, arena=1)
