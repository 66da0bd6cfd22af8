"""`--json` of every command, in one shape; completion; Ctrl-C."""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forking import Forks

from stepwell.cli import main
from stepwell.cli.commands import demo
from stepwell.cli.terminal import completing
from stepwell.quantization.quantizers import known_quantizers
from stepwell.targets.table import known_targets

from .commands import Commands

MODEL = """
import torch

def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval(), (torch.ones(2, 4),)

def data():
    return [(torch.ones(2, 4), None)]
"""
TEXT = """
func.func public @forward(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %y = aten.relu.default(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %z = aten.neg.default(%y) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %z : tensor<2x4xf32>
}
"""
COMMANDS = {
    "lower": ("m.py:make -o m.pte", {"delegates": 1, "outside": {}}, ["m.pte"]),
    "emit": ("m.py:make -o e.pte", {"delegates": 1, "stopped_after": None}, ["e.pte"]),
    "show": ("m.py:make --dot m.dot", {"text": None}, ["m.dot"]),
    "explain": ("m.py:make", {"target": "xnnpack"}, []),
    "check": ("m.py:make --no-artifact", {"ok": True, "findings": []}, []),
    "run": ("m.py:make", {}, []),
    "accuracy": (
        "m.py:make --data m.py:data --save int8.mlir",
        {"form": "int8-xnnpack", "cures": []},
        ["int8.mlir"],
    ),
    "budget": ("m.py:make --write", {}, ["stepwell-budget.toml"]),
    "prove": ("remove-first-power", {"counts": {"proved bit for bit": 1}}, []),
    "replay": ("--help", {}, []),
    "play": ("--help", {}, []),
    "validate": ("--help", {}, []),
    "discover": ("--list", {}, []),
    "verify-certificate": ("--help", {}, []),
    "sweep": ("examples/* --list", {}, []),
    "opt": ("t.mlir", {}, []),
    "reduce": ("t.mlir --test true", {}, ["t.small.mlir"]),
    "env": ("", {"moved": {}}, []),
    "plugins": ("", {}, []),
    "demo": ("--quick", {"right": True}, ["deit_tiny.pte"]),
}
"""Arguments, some of what is found, and what is written; some take minutes, or wait."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "m.py").write_text(MODEL)
    (tmp_path / "t.mlir").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "demo", lambda output, quick: {"right": True})
    return tmp_path


def test_every_command_is_tried() -> None:
    (commands,) = (a for a in main._parser()._actions if isinstance(a, argparse._SubParsersAction))
    assert set(commands.choices) == set(COMMANDS)


def test_a_missing_folder_is_noticed_before_the_work(command: Commands) -> None:
    (commands,) = (a for a in main._parser()._actions if isinstance(a, argparse._SubParsersAction))
    seen = set[str]()
    for name, parser in commands.choices.items():
        for option in parser._actions:
            words = (option.help or "").removeprefix("also ").split()
            if option.type is not Path or words[:1] not in (["write"], ["artifact"]):
                continue
            seen.add(option.dest)
            needed = {"validate": "x.pte x.py:f", "accuracy": "x.py:f --data x.py:f"}
            needed |= {"discover": "", "prove": ""}
            others = ["-o", "x.pte"] * (name == "emit" and option.dest != "output")
            line = [name, *needed.get(name, "x.py:f").split(), *others]
            said = command([*line, option.option_strings[-1], "missing/x.pte"], 1).err
            assert "the folder missing does not exist" in said, line
    assert {"html", "dot", "junit", "table", "rules", "save", "output", "etrecord"} <= seen


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_in_json_what_it_found(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, found, files = COMMANDS[command]
    if words == "--help":
        with pytest.raises(SystemExit):
            main.main([command, words])
        assert "--json FILE" in capsys.readouterr().out
        return
    assert main.main([command, *words.split(), "--json", "-"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert list(said) == ["stepwell", "command", "exit", "files", "errors", "result"]
    assert (said["command"], said["exit"], said["errors"]) == (command, 0, [])
    assert said["files"] == files
    assert found.items() <= said["result"].items() and said["result"]


def test_a_failure_is_told_in_json_too_and_what_is_no_number_as_a_word(command: Commands) -> None:
    command("lower nothing.pt2 --json told.json", 1)
    said = command.json("told.json")
    assert (said["exit"], said["result"]) == (1, None)
    assert said["errors"][0]["fact"] == "the file nothing.pt2 does not exist"
    command.write("m.py", MODEL)
    assert "cannot write" in command("show m.py:make --json missing/m.json", 1).err
    infinite = MODEL.replace("torch.nn.ReLU()", "torch.nn.Threshold(9, float('inf'))")
    command.write("inf.py", infinite)
    out = command("run inf.py:make --json -").out
    json.loads(out, parse_constant=lambda word: pytest.fail(word))


def completed(line: str, folder: Path) -> list[str]:
    asked: dict[str, Any] = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line}
    asked |= {"COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": str(folder / "words")}
    subprocess.run(
        [sys.executable, "-m", "stepwell"], env={**os.environ, **asked}, check=False, cwd=folder
    )
    return (folder / "words").read_text().split()


def test_a_shell_completes_commands_options_and_names(tmp_path: Path) -> None:
    pytest.importorskip("argcomplete")
    assert completed("stepwell lo", tmp_path) == ["lower"]
    assert completed("stepwell lower m.py:f -t cortex-m5", tmp_path) == ["cortex-m55"]
    assert completed("stepwell check --no", tmp_path) == ["--no-artifact"]


def test_a_shell_knows_every_target_and_quantizer() -> None:
    assert set(completing.TARGETS) == set(known_targets())
    assert set(completing.QUANTIZERS) == set(known_quantizers())


INTERRUPTED = """
import os, signal, torch

class M(torch.nn.Module):
    def forward(self, x):
        if IN_EXPORT:
            os.kill(os.getpid(), signal.SIGINT)
        return x.relu()

IN_EXPORT = {in_export}
if not IN_EXPORT:
    os.kill(os.getpid(), signal.SIGINT)

def make():
    return M(), (torch.ones(2),)
"""


@pytest.mark.parametrize("in_export", [False, True])
def test_an_interrupt_ends_a_command_in_silence(
    in_export: bool, tmp_path: Path, forks: Forks
) -> None:
    (tmp_path / "m.py").write_text(INTERRUPTED.format(in_export=in_export))
    ran = forks.run(["-m", "stepwell", "lower", "m.py:make", "-o", "m.pte"], cwd=tmp_path)
    assert ran.returncode in (130, -signal.SIGINT)
    assert (ran.stdout, ran.stderr) == ("", "")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["m.py"]
