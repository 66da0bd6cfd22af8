"""A target asks for its own packages, when it is asked for, and for no others."""

import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import torch
from forking import Forks

import stepwell
from stepwell.backends.tosa import flatbuffer, installed, reference_model
from stepwell.backends.tosa.graph import Graph, Operator, Region, Tensor
from stepwell.dialects.tosa import schema
from stepwell.dialects.tosa.generated import RowGatherOp

CHILD = """
import importlib.abc
import importlib.metadata as metadata
import sys

ABSENT = "tosa tosa_serializer tosa_reference_model ethosu ai_edge_litert transformers ml_dtypes"

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT.split():
            raise ModuleNotFoundError(f"No module named {name!r}")

def files(name, found=metadata.files):
    if name == "tosa-tools":
        raise metadata.PackageNotFoundError(name)
    return found(name)

sys.meta_path.insert(0, Blocked())
metadata.files = files

import torch
import stepwell

model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Softmax(-1)).eval()
x = torch.randn(2, 8)
exported = torch.export.export(model, (x,))
lowered = stepwell.lower(exported, "xnnpack")
torch.testing.assert_close(lowered.run(x)[0], model(x), atol=1e-5, rtol=1e-4)
assert lowered.report.delegates == 1
print(*sorted(name for name in sys.modules if name.startswith("stepwell.")))
try:
    stepwell.lower(exported, "tosa-1.0+fp").to_tosa()
except stepwell.StepwellError as error:
    print(error)
"""


def test_xnnpack_needs_the_packages_of_no_other_target(forks: Forks) -> None:
    ran = forks.run(["-c", CHILD], with_torch_alone=True)
    assert ran.returncode == 0, ran.stderr
    modules, _, said = ran.stdout.partition("\n")
    others = (
        r"stepwell\.(dialects\.(tosa|cmsis|ethosu)|backends\.(tosa|cortex_m|ethos_u)|arm_|npu_)"
    )
    assert re.findall(others, modules) == []
    assert "tosa-tools, which has the schema, is not installed" in said
    assert "stepwell[tosa]" in said


def test_an_absent_schema_or_model_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise PackageNotFoundError(name)

    exported = torch.export.export(torch.nn.Tanh(), (torch.ones(2),))
    lowered = stepwell.lower(exported, "tosa-1.0+fp")
    lowered.to_tosa()
    with monkeypatch.context() as patch:
        patch.setattr(schema, "files", absent)
        with pytest.raises(stepwell.StepwellError, match=r"not installed\n.*stepwell\[tosa\]"):
            schema.schema_path()
    monkeypatch.setattr(reference_model, "command_path", lambda name: None)
    with pytest.raises(stepwell.StepwellError, match=r"not installed\n.*stepwell\[tosa\]"):
        lowered.run(torch.ones(2))


def test_a_command_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference model of a user's own installation stands beside no interpreter."""
    command = tmp_path / "a-command-of-tosa"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    assert installed.command_path(command.name) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert installed.command_path(command.name) == str(command)


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema as tosa-tools 2026.5 has it: without scales, ROW_GATHER and MATMUL_T."""
    text = schema.schema_path().read_text()
    text = re.sub(r"\n  (scale_\w+|block_shape): ?[^;]*;[^\n]*", "", text)
    text = re.sub(r",\n  RowGatherAttribute,\n  MatMulTAttribute,?", "", text)
    assert "scale_data" not in text and "  MatMulTAttribute" not in text
    held = flatbuffer.parse_schema(text)
    monkeypatch.setattr(flatbuffer, "tosa_schema", lambda: held)


class Layer(torch.nn.Module):
    """A linear layer and what stands around it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).relu()


@pytest.mark.usefixtures("older")
def test_the_schema_that_executorch_pins_suffices_for_what_it_has() -> None:
    model, x = Layer().eval(), torch.randn(2, 64)
    exported = torch.export.export(model, (x,))
    lowered = stepwell.lower(exported, "tosa-1.0+fp")
    data = lowered.to_tosa()
    (y,) = lowered.run(x)
    torch.testing.assert_close(y, model(x), atol=1e-5, rtol=1e-4)
    (again,) = stepwell.read_tosa(data).run(x)
    torch.testing.assert_close(again, model(x), atol=1e-5, rtol=1e-4)


@pytest.mark.usefixtures("older")
def test_what_an_older_schema_has_not_is_said() -> None:
    held = Tensor("codes", (2, 32), 8, bytes(64), scale_type=17, scale_data=bytes(2))
    newer = Operator(RowGatherOp.CODE, (), (), {})
    for tensors, operators, what in (([held], [], "block-scaled"), ([], [newer], ".*operator")):
        graph = Graph([Region("main", (), (), operators, tensors, [])], (1, 1, 0, True))
        with pytest.raises(stepwell.StepwellError, match=rf"lacks {what}(.|\n)*2026\.8"):
            flatbuffer.write_graph(graph)
