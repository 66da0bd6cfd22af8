"""Commands and the API say what they have to say, and nothing of what torch and others do."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stepwell.cli.main import main
from stepwell.cli.terminal import progress
from stepwell.ir.platform.process_settings import kept_stderr, without_native_lines

COMMANDS = """
import torch, stepwell
from stepwell.cli.main import main
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
inputs = (torch.randn(1, 4),)
exported = torch.export.export(model, inputs)
lowered = stepwell.lower(exported, "xnnpack")
lowered.run(*inputs)
lowered.save("m.pte")
assert stepwell.check(exported, "xnnpack").ok
for line in ("show m.pte", "explain m.pte", "check m.pte", "run m.pte"):
    assert main(line.split()) == 0, line
"""
DEPENDENT = """
import torch

class M(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x

def make():
    return M(), (torch.randn(2),)
"""


def test_nothing_is_said_on_stderr_by_api_or_commands(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", COMMANDS], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, ""), run.stdout


def test_a_data_dependent_export_is_told_in_a_line_and_at_length_with_v(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "dependent.py"
    path.write_text(DEPENDENT)
    assert main(["lower", f"{path}:make"]) == 1
    fact, where, help = capfd.readouterr().err.strip().splitlines()
    assert "Could not guard on data-dependent expression" in fact
    assert where == "  at dependent.py:6"
    assert "torch.where" in help
    assert main(["lower", f"{path}:make", "-v"]) == 1
    assert "torch.ops.aten.sum" in capfd.readouterr().err


def test_native_lines_that_are_wanted_come_through(capfd: pytest.CaptureFixture[str]) -> None:
    say = "import os; os.write(2, b'[noise] a\\nworth reading\\n')"
    with without_native_lines(lambda line: line.startswith(b"[noise]")):
        subprocess.run([sys.executable, "-c", say], check=True)
        with without_native_lines(lambda line: False):
            print("ours", file=sys.__stderr__, flush=True)
    assert "worth reading" in (err := capfd.readouterr().err) and "noise" not in err


def test_what_another_thread_says_meanwhile_is_heard(capsys: pytest.CaptureFixture[str]) -> None:
    other = threading.Thread(target=lambda: print("from the other", file=sys.stderr))
    with kept_stderr() as kept:
        print("from this one", file=sys.stderr)
        other.start()
        other.join()
    assert kept.getvalue() == "from this one\n"
    assert capsys.readouterr().err == "from the other\n"


def test_progress_is_shown_late_and_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with progress.stepping("checking") as tell:
        tell("absorb", 1, 2)
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal.
    with progress.stepping("checking") as tell:
        tell("absorb", 1, 2)
    assert "absorb" in capfd.readouterr().err
    monkeypatch.setattr(progress, "PATIENCE", 60.0)
    with progress.stepping("checking") as tell:
        tell("absorb", 1, 2)
    assert capfd.readouterr().err == ""
