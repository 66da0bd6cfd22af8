"""A replay: programs lowered by two commits, and the table of what differs."""

import json
import subprocess
from pathlib import Path

import pytest
import torch

from stepwell.ir.diagnostics import StepwellError
from stepwell.model_zoo.regression import Replay
from stepwell.model_zoo.regression.replay import ROOT, Pair, commits_of, content, git, run

FIGURES = {
    "ir": "a", "sha": "a", "ops": {"xnnpack.add": 2, "xnnpack.sub": 1}, "bytes": 100,
    "delegates": 1, "outside": 0, "cost": 10, "seconds": 0.5, "peak": 1 << 20,
}  # fmt: skip


@pytest.fixture
def checkout() -> None:
    if subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True
    ).returncode:
        pytest.skip("this is no git checkout")


def test_equal_programs_are_not_listed_and_changed_ones_are() -> None:
    changed = {**FIGURES, "ir": "b", "sha": "b", "ops": {"xnnpack.add": 1, "xnnpack.sub": 1}}
    pairs = (
        Pair("toy/same", "xnnpack", FIGURES, {**FIGURES, "seconds": 0.55}),
        Pair("toy/other", "xnnpack", FIGURES, {**changed, "bytes": 90}),
        Pair("toy/gone", "xnnpack", FIGURES, {"fails": "StepwellError: no"}),
    )
    found = Replay("base" * 10, "head" * 10, pairs)
    assert [pair.name for pair in found.changed] == ["toy/other", "toy/gone"]
    text = str(found)
    assert "toy/same" not in text
    assert "100 → 90" in text and "add -1" in text
    assert "lowered → StepwellError: no" in text


def test_time_that_moved_is_listed_though_the_program_is_equal() -> None:
    found = Replay("a" * 10, "b" * 10, (Pair("toy", "t", FIGURES, {**FIGURES, "seconds": 1.5}),))
    assert not found.changed
    assert "0.50 → 1.50" in str(found)


def test_this_checkout_lowers_what_a_child_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "toy.pt2"
    layer = torch.nn.Linear(4, 3).eval()
    torch.export.save(torch.export.export(layer, (torch.ones(1, 4),)), file)
    asked = [
        {"name": "toy", "target": "xnnpack", "file": str(file)},
        {"name": "toy", "target": "cortex-m55", "file": str(file)},
    ]
    found, other, again = run(ROOT, [*asked, asked[0]], 1)
    assert found["delegates"] == 1 and found["bytes"] > 0 and found["ops"]
    assert "fails" in other or other["bytes"] > 0
    assert (again["ir"], again["sha"]) == (found["ir"], found["sha"])
    assert json.dumps(again["ops"]) == json.dumps(found["ops"])


def test_commits_of_equal_sources_have_one_name(checkout: None) -> None:
    head = git("rev-parse", "HEAD")
    assert commits_of("HEAD..") == (head, head)
    assert content(head) == content("HEAD")


def test_what_is_no_range_of_commits_is_refused(checkout: None) -> None:
    with pytest.raises(StepwellError, match="not a range of commits"):
        commits_of("HEAD")
    with pytest.raises(StepwellError, match="git rev-parse"):
        commits_of("no-such-commit..HEAD")


def test_the_child_needs_no_sweep_of_the_commit() -> None:
    """It runs with the stepwell of older commits: only what all of them have is imported."""
    child = ROOT / "src/stepwell/model_zoo/regression/child.py"
    text = child.read_text(encoding="utf-8")
    assert "stepwell.model_zoo.sweep" not in text and "stepwell.model_zoo.catalogue" not in text
