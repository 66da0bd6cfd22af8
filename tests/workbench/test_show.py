"""`stepwell show`: one page that holds everything, summaries, graphs for other viewers."""

import json
import re
import webbrowser
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from eager import exported, lower
from rewrite_runs import program_of

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
from stepwell.inspection.viewer import Story, tell, to_dot, to_html, to_model_explorer
from stepwell.inspection.viewer.differences import differences
from stepwell.inspection.viewer.highlight import highlighted
from stepwell.inspection.viewer.memory import Held, MemoryPlan, memory_plans, to_text
from stepwell.inspection.viewer.overlays import read_overlay
from stepwell.inspection.viewer.side_by_side import alike
from stepwell.inspection.viewer.story import OpLine
from stepwell.inspection.viewer.summary import summarize
from stepwell.ir.diagnostics import StepwellError

from .commands import Commands


class Model(torch.nn.Module):
    """Two delegates around a kernel, and a name that would end a script element."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.layer(x)) + x
        return torch.sigmoid(torch.atan(x))


def program() -> stepwell.Program:
    return stepwell.from_exported_program(exported(Model(), torch.randn(3, 8)))


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


def embedded(page: str) -> Any:
    """The story that a page holds."""
    found = re.search(r'type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_embedded_story_is_the_story(story: Story) -> None:
    told = embedded(to_html(story))
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


def test_the_command_writes_page_graphs_and_summary(command: Commands) -> None:
    program().save("m.mlir")
    files = ("p.html", "g.dot", "g.json")
    said = command("show m.mlir -t xnnpack --html p.html --dot g.dot --model-explorer g.json").out
    assert all(len(command.read(name)) > 500 for name in files)
    assert said.startswith("wrote p.html: ") and "a memory plan" in said
    assert "aten.linear.default" in command("show m.mlir --summary").out
    assert "func.func @forward" in command("show m.mlir").out


def test_an_artifact_is_shown_as_a_program(command: Commands) -> None:
    stepwell.lower(program(), "xnnpack").save("m.pte")
    assert "fully_connected" in command("show m.pte").out


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


def test_a_memory_plan_is_drawn_within_its_arena() -> None:
    lowered = lower(lambda x: torch.atan(torch.atan(x)) + 1, torch.randn(8, 8))
    container = read_container(lowered.to_pte())
    (plan,) = memory_plans(container)
    assert plan.size == max(container.methods[0].arena_sizes)
    assert all(h.offset >= 0 and h.offset + h.bytes <= plan.size for h in plan.held)
    for a, b in combinations(plan.held, 2):
        if a.first <= b.last and b.first <= a.last:
            assert a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset, (a, b)
    assert plan.busiest[1] <= plan.size


def chars(size: int, offset: int) -> TensorValue:
    return TensorValue(ScalarType.CHAR, (size,), (0,), Planned(1, offset))


def test_bytes_of_a_view_are_held_since_its_tensor_was_written() -> None:
    """`part` reads the rows of an input that nobody touches as a whole after the first call."""
    values = tuple(map(chars, (8, 4, 4, 4, 4), (0, 0, 4, 8, 12)))
    calls = (KernelCall("first.out", (1, 3, 3)), KernelCall("second.out", (2, 4, 4)))
    method = Method("forward", values, (0,), (4,), calls, arena_sizes=(0, 16))
    (plan,) = memory_plans(Container((method,)))
    held = {h.offset: (h.first, h.last) for h in plan.held if h.label == "read as a part"}
    assert held == {0: (0, 0), 4: (0, 1)}
    assert plan.busiest == (0, 12), "bytes of the input and of its rows count once"


def test_an_output_written_part_by_part_is_held_until_the_end() -> None:
    """No call names the output as a whole."""
    values = tuple(map(chars, (4, 4, 4, 8), (8, 0, 4, 0)))
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


def test_explain_draws_the_memory_of_a_pte_and_of_nothing_else(command: Commands) -> None:
    program().save("m.mlir")
    assert "bytes of arena" in command("explain m.mlir -t xnnpack --memory").out
    assert "is not a .pte" in command("explain m.mlir -t tosa-1.0+fp --memory", 1).err


def test_open_asks_for_a_page_and_opens_it(
    command: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)  # pyright: ignore
    program().save("m.mlir")
    assert "add --html FILE" in command("show m.mlir --open", 1).err
    command("show m.mlir --html p.html --open")
    assert opened == [Path("p.html").resolve().as_uri()]


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
    before = program()
    full = differences(before, stepwell.lower(before, "xnnpack").program, (x,))
    found = differences(before, before, (x,))
    assert found and set(found.values()) == {0.0}
    assert "sigmoid" in full and "linear" not in full, "the linear took the relu in"
    assert all(value < 1e-5 for value in full.values()), full


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing", "is not valid JSON"),
        ("[]", "has no results"),
        ('{"results": {"a": {}}}', "'a' has no value"),
    ],
)
def test_numbers_that_cannot_be_laid_over_are_told(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "numbers.json"
    path.write_text(text)
    with pytest.raises(StepwellError, match=said):
        read_overlay(path)


def test_show_writes_another_program_and_numbers_into_the_page(command: Commands) -> None:
    for name, op in (("a", "relu"), ("b", "tanh")):
        program_of(f"%y = aten.{op}.default(%x: f32[2])").save(f"{name}.mlir")
    command.write("n.json", '{"results": {"%y": {"value": 2}}}')
    given = "--difference --beside b.mlir --overlay n.json"
    command(f"show a.mlir -t xnnpack --html page.html {given}")
    told = embedded(command.read("page.html"))
    assert told["beside"] == len(told["levels"]) - 2 and told["levels"][-1]["name"] == "b"
    assert told["overlays"] == {"n.json": {"results": {"%y": {"value": 2}}}}
