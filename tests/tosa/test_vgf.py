"""The target vgf: the file that Arm's model converter makes, where it is installed."""

import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import stepwell
from stepwell.backends.tosa import vgf

X = torch.randn(1, 3, 8, 8)


@pytest.fixture(scope="module")
def lowered() -> "stepwell.Lowered":
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4)).eval()
    return stepwell.lower(torch.export.export(model, (X,)), "vgf")


def test_without_the_converter_the_error_says_what_to_install(
    lowered: "stepwell.Lowered", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vgf, "CONVERTER", "no-such-command")
    with pytest.raises(stepwell.StepwellError, match=r"stepwell\[vgf\]"):
        lowered.to_vgf()


def test_its_graph_is_tosa_and_nothing_here_runs_its_file(lowered: "stepwell.Lowered") -> None:
    program = stepwell.read_tosa(lowered.to_tosa())
    assert torch.equal(program.run(X, method="main")[0], lowered.program.run(X)[0])


def test_open_shapes_are_refused_before_the_converter_sees_them() -> None:
    rows = torch.export.Dim("rows", min=1, max=8)
    exported = torch.export.export(nn.ReLU(), (torch.randn(2, 3),), dynamic_shapes=({0: rows},))
    with pytest.raises(stepwell.StepwellError, match="shape"):
        stepwell.lower(exported, "vgf")


@pytest.mark.skipif(
    not (Path(sys.executable).with_name(vgf.CONVERTER).exists() or shutil.which(vgf.CONVERTER)),
    reason="needs Arm's model converter: pip install 'stepwell[vgf]'",
)
def test_the_converter_takes_the_graph(lowered: "stepwell.Lowered") -> None:
    assert lowered.to_vgf()[:4] == b"VGF1"
