"""`lower(..., check=True)`: what check contradicts is not lowered."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from xdsl.ir import Operation

import stepwell
from stepwell import Refusal, Rewrite, Rewriter
from stepwell.dialects import aten

from .commands import Commands


@dataclass(frozen=True)
class HalveRelu(Rewrite[Any]):
    """A rewrite that is wrong: relu to x / 2."""

    name: ClassVar[str] = "halve-relu"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ReluDefault,)

    def match(self, op: Any, program: Any) -> Any | Refusal | None:
        """Every relu."""
        return op

    def build(self, match: Any, rw: Rewriter) -> None:
        """Half of it."""
        half = aten.MulScalar.make(match.operands[0], 0.5, result_types=[match.results[0].type])
        rw.replace(match, [rw.insert(half).results[0]])


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
