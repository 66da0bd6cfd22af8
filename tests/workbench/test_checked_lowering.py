"""`lower(..., check=True)`: what check contradicts is not lowered."""

from pathlib import Path

import pytest
import torch
from wrong_rewrites import HalveRelu

import stepwell

from .commands import Commands


@pytest.fixture(scope="module")
def exported() -> torch.export.ExportedProgram:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    return torch.export.export(model.eval(), (torch.randn(3, 4),))


def test_a_wrong_rewrite_is_named_and_nothing_is_lowered(
    exported: torch.export.ExportedProgram,
) -> None:
    wrong = stepwell.PIPELINES["xnnpack"].before("normalize", HalveRelu)
    stepwell.lower(exported, "xnnpack", wrong)  # Nobody looks.
    with pytest.raises(stepwell.StepwellError, match="check: halve-relu"):
        stepwell.lower(exported, "xnnpack", wrong, check=True)


def test_a_right_lowering_carries_what_was_checked(
    exported: torch.export.ExportedProgram,
) -> None:
    lowered = stepwell.lower(exported, "xnnpack", check=True)
    assert lowered.report.check is not None
    assert lowered.report.check.ok
    assert stepwell.lower(exported, "xnnpack").report.check is None


def test_the_command_line_checks_on_the_way(
    exported: torch.export.ExportedProgram, command: Commands
) -> None:
    torch.export.save(exported, "model.pt2")
    assert "check" in command("lower model.pt2 -t xnnpack -o model.pte --check").out
    assert Path("model.pte").exists()
