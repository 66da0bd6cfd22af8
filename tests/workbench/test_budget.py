"""Budgets: a build fails where a program costs more than its committed file allows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import stepwell
from stepwell.cli.main import main
from stepwell.integrations.executorch.stock import stock_pte

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
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.py").write_text(WHOLE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_delegate_that_splits_fails_the_build(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["budget", "net.py:make", "--write"]) == 0
    written = (folder / "stepwell-budget.toml").read_text()
    assert 'model = "net.py:make"\ntarget = "xnnpack"\ndelegates = 1\noutside = 0\n' in written
    assert main(["budget"]) == 0
    (folder / "net.py").write_text(SPLIT)
    capsys.readouterr()
    assert main(["budget", "--json", "over.json"]) == 1
    said = capsys.readouterr().out
    assert "✗ delegates" in said and "outside: aten." in said
    (found,) = json.loads((folder / "over.json").read_text())["result"]["programs"]
    assert found["passed"]["delegates"] == [1, 2]
    assert main(["budget", "--write"]) == 0
    assert main(["budget"]) == 0


def test_the_file_of_any_flow_has_a_budget(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)), torch.ones(2, 8)
    exported = torch.export.export(model.eval(), (x,))
    stepwell.lower(exported, "xnnpack").save(folder / "m.pte")
    assert main(["budget", "m.pte", "--write"]) == 0
    (folder / "m.pte").write_bytes(stock_pte(exported))
    assert main(["budget", "m.pte"]) == 1
    assert "✗ outside" in capsys.readouterr().out


@pytest.mark.usefixtures("forked")
def test_the_latency_is_held_against_executorchs_own_flow(folder: Path) -> None:
    assert main(["budget", "net.py:make", "--write", "--latency", "--json", "b.json"]) == 0
    (found,) = json.loads((folder / "b.json").read_text())["result"]["programs"]
    assert found["figures"]["latency_ratio"] > 0
    assert "latency_ratio = " in (folder / "stepwell-budget.toml").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("delegates = 1", "has delegates"),
        ("[[program]]\ndelegates = 1", "names no model"),
        ('[[program]]\nmodel = "m"\ndelegate = 1', "delegate = 1"),
        ('[[program]]\nmodel = "m"\ndelegates = "one"', "delegates = 'one'"),
        ("[[program", "is no TOML"),
        ('[[program]]\nmodel = "m.pte"\nlatency_ratio = 1.0', "no program to time"),
    ],
)
def test_what_is_no_budget_is_said(
    text: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "stepwell-budget.toml").write_text(text)
    assert main(["budget"]) == 1
    assert said in capsys.readouterr().err


def test_a_test_of_ones_own_holds_a_lowering_to_a_budget() -> None:
    exported = torch.export.export(torch.nn.Linear(8, 8).eval(), (torch.ones(2, 8),))
    lowered = stepwell.lower(exported, "xnnpack")
    assert stepwell.budget(lowered, delegates=1, outside=0).bytes == len(lowered.to_pte())
    with pytest.raises(stepwell.StepwellError, match=r"bytes is(.|\n)*arena is(.|\n)*report"):
        stepwell.budget(lowered, bytes=10, arena=1)
