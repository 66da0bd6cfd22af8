"""A profile of our `.pte`, through ExecuTorch's own Inspector, names the model's ops."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import stepwell
from llama import llama_block
from mobilenet import mobilenet_v3_small
from quantized import mlp_dynamic
from stepwell.backends.xnnpack.events import kind_of
from stepwell.cli.main import main
from stepwell.inspection.reports.profiling import Event, Profile


class Mixed(nn.Module):
    """Convolution, norm and product in a delegate; SiLU's twin and a sum outside it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.LayerNorm(64)
        self.linear = nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(x)).flatten(2)
        return torch.atan(torch.softmax(self.linear(self.norm(x)), -1))


@pytest.fixture(scope="module")
def exported() -> torch.export.ExportedProgram:
    torch.manual_seed(0)
    return torch.export.export(Mixed().eval(), (torch.randn(1, 3, 8, 8),))


def nodes(found: Profile) -> dict[str, list[str]]:
    """Node → the kinds of event that computed it, whatever the processor calls its kernels."""
    return {
        node.name: [kind_of(event.kind) for event in events]
        for node, events in found.by_node.items()
        if node is not None
    }


def test_the_inspector_leads_events_inside_a_delegate_to_nodes_and_lines(exported) -> None:
    lowered = stepwell.lower(exported, "xnnpack")
    found = lowered.profile(torch.randn(1, 3, 8, 8), repeat=3)
    ran = nodes(found)
    assert all(event.nodes for event in found.events)
    assert ran["linear"] == ["Fully Connected"]
    assert ran["softmax"] == ["Softmax"]
    assert ran["atan"] == ["atan.out"]
    assert "Reciprocal Square Root" in ran["layer_norm"]
    lines = {node.name: node.line for node in found.by_node if node is not None}
    source = Path(__file__).read_text().splitlines()
    for node, text in (("softmax", "torch.softmax"), ("conv2d", "self.conv(x)")):
        file, number = (lines[node] or "").split(":")
        assert file == Path(__file__).name
        assert text in source[int(number) - 1]
    assert 0 < sum(event.milliseconds for event in found.events) < 2 * found.milliseconds
    assert "atan.out" in str(found) and "<table>" in found._repr_html_()


def test_an_etrecord_on_disk_serves_the_stock_inspector(exported, tmp_path: Path) -> None:
    from executorch.devtools import Inspector

    from stepwell.backends.executorch.running.inspection import write_etrecord
    from stepwell.backends.executorch.running.runner import PteSession

    program = stepwell.from_exported_program(exported)
    lowered = stepwell.lower(program, "xnnpack")  # The torch program is made again.
    write_etrecord(lowered.to_etrecord(), tmp_path / "record")
    session = PteSession.load(lowered.artifact, profile=True)
    session.run(torch.randn(1, 3, 8, 8))
    session.write_profile(tmp_path / "run.etdp")
    inspector = Inspector(etdump_path=str(tmp_path / "run.etdp"), etrecord=str(tmp_path / "record"))
    found = {e.name: e.op_types for block in inspector.event_blocks for e in block.events}
    assert found["Softmax (NC, F32) #1"] == ["softmax.int"]
    assert found["native_call_atan.out"] == ["atan.default"]


@pytest.mark.parametrize("make", [mobilenet_v3_small, mlp_dynamic, llama_block])
def test_every_event_of_a_whole_model_is_known(make) -> None:
    made = make()
    is_module = isinstance(made, tuple)
    exported = torch.export.export(made[0], made[1]) if is_module else made
    inputs = made[1] if is_module else made.example_inputs[0]
    lowered = stepwell.lower(exported, "xnnpack")
    found = lowered.profile(*inputs, repeat=1)
    from stepwell.backends.xnnpack.pte import to_container

    (method,) = to_container(lowered.program).methods
    known = [set(delegate.debug_map) for delegate in method.delegates]
    inside = [event for event in found.events if event.delegate]
    assert inside
    assert {event.name for event in inside} <= set().union(*known)


def test_the_command_line_writes_a_record_and_profiles_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = "examples/models/tiny.py:mlp"
    pte, record, events = (str(tmp_path / name) for name in ("m.pte", "m.etrecord", "m.json"))
    assert main(["lower", model, "-o", pte, "--etrecord", record]) == 0
    capsys.readouterr()
    command = ["run", pte, "--profile", "--repeat", "2"]
    assert main([*command, "--etrecord", record, "--json", events]) == 0
    told = capsys.readouterr().out
    assert "aten.linear.default linear" in told
    assert Path(events).read_text().startswith("{")
    assert main(command) == 0
    assert "Fully Connected" in capsys.readouterr().out
    assert main([*command, "--etrecord", pte]) == 1
    assert "is not an ETRecord" in capsys.readouterr().err
    assert main(["lower", model, "-t", "tosa-1.0+fp", "--etrecord", record]) == 1
    assert "has no etrecord artifact" in capsys.readouterr().err


def test_the_page_shows_each_op_s_time(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = ["show", "examples/models/tiny.py:mlp", "-t", "xnnpack", "--html", str(page)]
    assert main([*command, "--profile"]) == 0
    assert '"times":{"linear' in page.read_text().replace(" ", "")
    assert main(command) == 0
    assert '"times":{}' in page.read_text().replace(" ", "")


def test_the_shares_of_a_profile_are_those_of_the_whole_call() -> None:
    events = tuple(Event(f"Add (ND) #{n}", 0, "XnnpackBackend", 0.001, ()) for n in range(50))
    found = str(Profile("forward", 0.5, 3, events))
    assert re.search(r"^10.0%  0.050 .*Add \(ND\) ×50$", found, re.M)
    assert re.search(r"^90.0%  0.450 .*between operators", found, re.M)
    assert "--etrecord" in found
    assert "between" not in str(Profile("forward", 0.05, 3, events))
