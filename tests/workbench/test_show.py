"""`stepwell show`: one page that holds everything, summaries, graphs for other viewers."""

from __future__ import annotations

import json
import re
import webbrowser
from itertools import combinations
from pathlib import Path

import pytest
import torch

import stepwell
from stepwell.backends.executorch.container import (
    Container,
    KernelCall,
    Method,
    Planned,
    ScalarType,
    TensorValue,
)
from stepwell.backends.executorch.reading.read import read_container
from stepwell.cli.main import main
from stepwell.inspection.viewer import Story, tell, to_dot, to_html, to_model_explorer
from stepwell.inspection.viewer.differences import differences
from stepwell.inspection.viewer.highlight import highlighted
from stepwell.inspection.viewer.memory import Held, MemoryPlan, memory_plans, to_svg
from stepwell.inspection.viewer.memory_text import to_text
from stepwell.inspection.viewer.overlays import read_overlay
from stepwell.inspection.viewer.side_by_side import alike
from stepwell.inspection.viewer.story import OpLine
from stepwell.inspection.viewer.summary import summarize
from stepwell.ir.diagnostics import StepwellError


class Model(torch.nn.Module):
    """Two delegates around a kernel, and a name that would end a script element."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.layer(x)) + x
        return torch.sigmoid(torch.atan(x))


def program() -> stepwell.Program:
    inputs = (torch.randn(3, 8),)
    return stepwell.from_exported_program(torch.export.export(Model().eval(), inputs))


@pytest.fixture
def story() -> Story:
    return tell(program(), "xnnpack", title="small </script> model", notes={"check": "fine"})


def test_the_levels_of_a_story_share_the_ops_that_a_step_left_alone(story: Story) -> None:
    first, last = story.levels[0], story.levels[-1]
    assert first.name == "program" and len(story.levels) > 2
    for before, after in zip(story.levels, story.levels[1:], strict=False):
        shared = {line.op for line in before.lines} & {line.op for line in after.lines}
        assert len(shared) > 1
    assert any(line.delegate == 0 for line in last.lines)
    assert any(line.delegate == 1 for line in last.lines)


def test_the_lines_of_a_level_hold_every_op_of_the_program(story: Story) -> None:
    assert story.lowered is not None
    shown = [line.name for line in story.levels[-1].lines if line.op >= 0]
    held = [op.name for op in story.lowered.program.method().body.walk()]
    assert shown == held


def test_the_page_needs_no_network_and_no_other_file(story: Story) -> None:
    page = to_html(story)
    for outside in (r"\bsrc=", r"<link", r"@import", r"url\(", r"\bfetch\(", "XMLHttpRequest"):
        assert not re.search(outside, page), outside
    assert page.count("</script>") == 2, "a name in the program ended a script element"


def test_the_embedded_story_is_the_story(story: Story) -> None:
    page = to_html(story)
    found = re.search(r'type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    told = json.loads(found[1])
    assert [level["name"] for level in told["levels"]] == [level.name for level in story.levels]
    assert told["report"]["delegates"] == 2
    applied = sum(len(level.applications) for level in story.levels)
    assert sum(len(level["applications"]) for level in told["levels"]) == applied > 0
    assert told["notes"] == {"check": "fine"}
    assert {fate["node"] for fate in told["fates"]} >= {"linear", "atan"}


def test_a_summary_counts_ops_work_and_weights() -> None:
    counts = summarize(program())
    assert counts.ops["aten.linear.default"] == (1, 3 * 8 * 8)
    assert [row.bytes for row in counts.weights] == [8 * 8 * 4, 8 * 4]
    assert counts.activations >= 2 * 3 * 8 * 4
    assert "aten.linear.default" in str(counts)
    lowered = summarize(stepwell.lower(program(), "xnnpack").program)
    assert lowered.delegates == 2


def test_graphviz_has_a_node_for_each_op_and_a_cluster_for_each_delegate() -> None:
    lowered = stepwell.lower(program(), "xnnpack").program
    dot = to_dot(lowered)
    assert dot.count("subgraph cluster_") == 2
    assert "xnnpack.fully_connected" in dot and "aten.atan.default" in dot
    assert dot.count("{") == dot.count("}")


def test_model_explorer_edges_lead_to_nodes_that_exist() -> None:
    graphs = json.loads(to_model_explorer(stepwell.lower(program(), "xnnpack").program))["graphs"]
    nodes = {node["id"] for node in graphs[0]["nodes"]}
    assert len(nodes) == len(graphs[0]["nodes"])
    edges = [e for node in graphs[0]["nodes"] for e in node.get("incomingEdges", ())]
    assert edges and all(edge["sourceNodeId"] in nodes for edge in edges)


def test_highlighting_changes_nothing_but_colors() -> None:
    text = str(program())
    colored = highlighted(text)
    assert colored != text
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == text


def test_the_command_writes_page_graphs_and_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program().save(tmp_path / "m.mlir")
    model = str(tmp_path / "m.mlir")
    page, dot, explorer = (str(tmp_path / name) for name in ("p.html", "g.dot", "g.json"))
    assert main(["show", model, "-t", "xnnpack", "--html", page, "--dot", dot,
                 "--model-explorer", explorer]) == 0  # fmt: skip
    assert all((tmp_path / name).stat().st_size > 500 for name in ("p.html", "g.dot", "g.json"))
    said = capsys.readouterr().out
    assert said.startswith(f"wrote {page}: ") and "a memory plan" in said
    assert main(["show", model, "--summary"]) == 0
    assert "aten.linear.default" in capsys.readouterr().out
    assert main(["show", model]) == 0
    assert "func.func @forward" in capsys.readouterr().out


def test_an_artifact_is_shown_as_a_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.pte").write_bytes(stepwell.lower(program(), "xnnpack").to_pte())
    assert main(["show", str(tmp_path / "m.pte")]) == 0
    assert "fully_connected" in capsys.readouterr().out


def test_programs_and_reports_render_in_notebooks() -> None:
    assert "aten.linear.default" in program()._repr_html_()
    assert "<table" in stepwell.lower(program(), "xnnpack").report._repr_html_()


def test_an_application_shows_what_a_rewrite_took_away_and_what_it_wrote(story: Story) -> None:
    made = {a.rewrite: a for level in story.levels for a in level.applications}
    lowered = made["lower-linear"]
    gone = [piece.text for piece in lowered.before if piece.changed]
    come = [piece.text for piece in lowered.after if piece.changed]
    assert len(gone) == 1 and "aten.linear.default(%x" in gone[0]
    assert len(come) == 1 and "xnnpack.fully_connected(%x" in come[0]
    assert any(not piece.changed for piece in lowered.after), "its reader stands by"
    assert story.lowered is not None
    counted = sum(step.applied for step in story.lowered.report.steps)
    assert counted >= sum(len(level.applications) for level in story.levels)


def test_the_source_of_a_model_stands_on_the_page_and_no_folder_of_this_machine(
    story: Story,
) -> None:
    name = Path(__file__).name
    assert any("torch.relu(self.layer(x)) + x" in t for t in story.sources[name].lines.values())
    here = str(Path(__file__).parent)
    assert here not in to_html(story)
    assert f"vscode://file/{here}/{name}:{{line}}" in to_html(story, "vscode://file/{path}:{line}")


def test_a_memory_plan_is_drawn_within_its_arena(tmp_path: Path) -> None:
    class Kernels(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.atan(torch.atan(x)) + 1

    exported = torch.export.export(Kernels(), (torch.randn(8, 8),))
    container = read_container(stepwell.lower(exported, "xnnpack").to_pte())
    (plan,) = memory_plans(container)
    assert plan.size == max(container.methods[0].arena_sizes)
    assert all(h.offset >= 0 and h.offset + h.bytes <= plan.size for h in plan.held)
    for a, b in combinations(plan.held, 2):
        if a.first <= b.last and b.first <= a.last:
            assert a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset, (a, b)
    assert plan.busiest[1] <= plan.size
    assert to_svg(plan).count("<rect") == len(plan.held)


def test_bytes_of_a_view_are_held_since_its_tensor_was_written() -> None:
    """`part` reads the rows of an input that nobody touches as a whole after the first call."""
    values = (
        TensorValue(ScalarType.CHAR, (8,), (0,), Planned(1, 0)),
        TensorValue(ScalarType.CHAR, (4,), (0,), Planned(1, 0)),
        TensorValue(ScalarType.CHAR, (4,), (0,), Planned(1, 4)),
        TensorValue(ScalarType.CHAR, (4,), (0,), Planned(1, 8)),
        TensorValue(ScalarType.CHAR, (4,), (0,), Planned(1, 12)),
    )
    calls = (KernelCall("first.out", (1, 3, 3)), KernelCall("second.out", (2, 4, 4)))
    method = Method("forward", values, (0,), (4,), calls, arena_sizes=(0, 16))
    (plan,) = memory_plans(Container((method,)))
    held = {h.offset: (h.first, h.last) for h in plan.held if h.label == "read as a part"}
    assert held == {0: (0, 0), 4: (0, 1)}
    assert plan.busiest == (0, 12), "bytes of the input and of its rows count once"


def test_an_output_written_part_by_part_is_held_until_the_end() -> None:
    """No call names the output as a whole."""
    values = (
        TensorValue(ScalarType.CHAR, (4,), (0,), Planned(1, 8)),
        TensorValue(ScalarType.CHAR, (4,), (0,), Planned(1, 0)),
        TensorValue(ScalarType.CHAR, (4,), (0,), Planned(1, 4)),
        TensorValue(ScalarType.CHAR, (8,), (0,), Planned(1, 0)),
    )
    calls = tuple(KernelCall(f"{k}.out", (0, k, k)) for k in (1, 2))
    method = Method("forward", values, (0,), (3,), calls, arena_sizes=(0, 16))
    (plan,) = memory_plans(Container((method,)))
    held = {h.offset: (h.first, h.last) for h in plan.held if h.label == "read as a part"}
    assert held == {0: (0, 1), 4: (1, 1)}
    assert plan.busiest == (1, 12)


def test_a_memory_plan_in_text_says_who_is_where_when_and_what_bounds_it() -> None:
    held = (
        Held("first: char 8", 0, 8, 0, 1),
        Held("second: char 4", 8, 4, 1, 2),
        Held("third: char 2", 0, 2, 2, 3),
    )
    text = to_text(MemoryPlan("forward", 16, 4, held), columns=4, rows=4)
    assert text == (
        "forward: 16 bytes of arena, 4 steps\n\n"
        "12 ····\n 8 ·bb·\n 4 aa··\n 0 aacc\n    ^ step 1\n\n"
        "step 1 holds 12 bytes at once; the other 4 are gaps between tensors and alignment\n"
        "  a          8 bytes at         0, steps 0 to 1  first: char 8\n"
        "  b          4 bytes at         8, steps 1 to 2  second: char 4\n"
        "elsewhere\n"
        "  c          2 bytes at         0, steps 2 to 3  third: char 2"
    )
    whole = to_text(MemoryPlan("forward", 8, 4, held[:1]))
    assert "all of the arena: no placement is smaller" in whole


def test_explain_draws_the_memory_of_a_pte_and_of_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program().save(tmp_path / "m.mlir")
    assert main(["explain", str(tmp_path / "m.mlir"), "-t", "xnnpack", "--memory"]) == 0
    assert "bytes of arena" in capsys.readouterr().out
    assert main(["explain", str(tmp_path / "m.mlir"), "-t", "tosa-1.0+fp", "--memory"]) == 1
    assert "is no .pte" in capsys.readouterr().err


def test_open_asks_for_a_page_and_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)  # pyright: ignore
    program().save(tmp_path / "m.mlir")
    assert main(["show", str(tmp_path / "m.mlir"), "--open"]) == 1
    assert "give --html FILE" in capsys.readouterr().err
    page = tmp_path / "p.html"
    assert main(["show", str(tmp_path / "m.mlir"), "--html", str(page), "--open"]) == 0
    assert opened == [page.resolve().as_uri()]


def _lines(*texts: str, path: str | None = None) -> list[OpLine]:
    return [OpLine(at, text, 1, node=f"n{at}", path=path) for at, text in enumerate(texts)]


def test_what_was_put_in_between_is_new_and_the_rest_keeps_its_numbers() -> None:
    old = _lines("%a = relu(%x) : t", "%b = gelu(%a) : t", "%c = relu(%b) : t")
    new = _lines("%0 = relu(%x) : t", "%1 = tanh(%0) : t", "%2 = gelu(%1) : t", "%3 = relu(%2) : t")
    assert [line.op for line in alike(old, new, 10)] == [0, 10, 1, 2]
    turned = _lines("%0 = gelu(%x) : t", "%1 = relu(%0) : t", "%2 = relu(%1) : t")
    assert sum(line.op < 10 for line in alike(old, turned, 10)) == 2, "in one order, not in two"


def test_the_difference_from_eager_is_that_of_each_node() -> None:
    x = torch.randn(3, 8)
    exported = torch.export.export(Model().eval(), (x,))
    before = stepwell.from_exported_program(exported)
    full = differences(before, stepwell.lower(exported, "xnnpack").program, (x,))
    found = differences(before, before, (x,))
    assert found and set(found.values()) == {0.0}
    assert "sigmoid" in full and "linear" not in full, "the linear took the relu in"
    assert all(value < 1e-5 for value in full.values()), full


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing", "is no JSON"),
        ("[]", "has no results"),
        ('{"results": {"a": {}}}', "'a' has no value"),
    ],
)
def test_numbers_that_cannot_be_laid_over_are_told(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "numbers.json"
    path.write_text(text)
    with pytest.raises(StepwellError, match=said):
        read_overlay(path)


def test_show_writes_another_program_and_numbers_into_the_page(tmp_path: Path) -> None:
    for name, op in (("a", "relu"), ("b", "tanh")):
        (tmp_path / f"{name}.mlir").write_text(
            "func.func @forward(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
            f"%y = aten.{op}.default(%x) : (tensor<2xf32>) -> tensor<2xf32>\n"
            "func.return %y : tensor<2xf32>\n}\n"
        )
    (tmp_path / "n.json").write_text('{"results": {"%y": {"value": 2}}}')
    page = tmp_path / "page.html"
    command = ["show", f"{tmp_path}/a.mlir", "-t", "xnnpack", "--html", str(page), "--difference"]
    command += ["--beside", f"{tmp_path}/b.mlir", "--overlay", f"{tmp_path}/n.json"]
    assert main(command) == 0
    found = re.search(r'type="application/json">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    told = json.loads(found[1])
    assert told["beside"] == len(told["levels"]) - 2 and told["levels"][-1]["name"] == "b"
    assert told["overlays"] == {"n.json": {"results": {"%y": {"value": 2}}}}
