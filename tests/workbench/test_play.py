"""The playground without a browser: each action, what it refuses, and who may ask."""

import http.client
import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from eager import Function, exported

import stepwell
from stepwell.cli.commands.play import FIRST
from stepwell.cli.main import main
from stepwell.inspection.playground import Playground, Playing
from stepwell.inspection.playground.server import HEADER
from stepwell.inspection.playground.sharing import from_file, from_link
from stepwell.ir.diagnostics import StepwellError

RULE = """rule {name}
    A gelu.
Before:
    %y = aten.gelu.default(%x)
After:
    %y = {after}
"""
SILU = RULE.format(name="gelu-to-silu", after="aten.silu.default(%x)")
ABS = RULE.format(name="relu-to-abs", after="aten.abs.default(%x)").replace("gelu", "relu")
NO_GELU = "legalize/lower-gelu"


@pytest.fixture(scope="module")
def program() -> Any:
    layers = torch.nn.LayerNorm(8), torch.nn.Linear(8, 32), torch.nn.GELU(), Function(torch.atan)
    program = exported(torch.nn.Sequential(*layers), torch.ones(2, 8))
    return stepwell.from_exported_program(program)


@pytest.fixture
def held(program: Any) -> Iterator[Playground]:
    found = Playground(program, "block")
    yield found
    found.close()


def said(call: Any, *args: Any) -> str:
    with pytest.raises(StepwellError) as error:
        call(*args)
    return str(error.value)


def step(result: Any, name: str) -> Any:
    return next(row for row in result["steps"] if row["name"] == name)


def test_a_way_is_shown_whole_and_is_what_lower_gives(held: Playground) -> None:
    found = held.lower({})
    assert found["right"] == stepwell.lower(held.program, "xnnpack").program.text()
    assert found["left"] == held.program.text() and found["delegates"] == 1
    assert found["outside"] == [("aten.atan.default", 1)]
    assert {op["node"]: op["where"] for op in found["ops"]}["atan"] == "kernel"
    parts = {part["name"]: part["applied"] for part in step(found, "legalize")["parts"]}
    assert parts["lower-gelu"] == 1 and sum(parts.values()) == step(found, "legalize")["applied"]
    json.dumps(found)


def test_steps_are_switched_off_moved_and_replaced_as_by_the_command(held: Playground) -> None:
    edits = [["without", NO_GELU], ["move", "/fuse-clamp=/share-nodes"]]
    found = held.lower({"edits": [*edits, ["replace", "/choose-by-rank=merge-permutes"]]})
    row = next(p for p in step(found, "legalize")["parts"] if p["name"] == "lower-gelu")
    names = [one["name"] for one in found["steps"]]
    assert row["off"] and ("aten.gelu.default", 1) in found["outside"]
    assert names.index("fuse-clamp") + 1 == names.index("share-nodes")
    assert "choose-by-rank" not in names and "--move /fuse-clamp=/share-nodes" in found["command"]


@pytest.mark.parametrize("at", ["", "plain", "nodes", "laid-out", "/absorb", "xnnpack"])
def test_an_edit_at_each_level_goes_on_from_there(held: Playground, at: str) -> None:
    left = held.lower({"at": at})["left"]
    same = held.lower({"at": at, "text": left, "text_at": at})
    assert same["right"] == held.lower({})["right"], "nothing was edited"
    kind = "xnnpack." if "xnnpack.gelu" in left else "aten."
    edited = left.replace(f"{kind}gelu(", f"{kind}tanh(").replace("gelu.default", "tanh.default")
    asked = {"at": at, "text": edited, "text_at": at}
    assert "xnnpack.tanh" in held.lower(asked)["right"]
    apart = {one["node"]: one["most"] for one in held.compare(asked)["nodes"].values()}
    assert apart["linear"] < 1e-5 and apart["gelu"] > 0.01, "an edited line keeps its node"


def test_differences_are_none_where_nothing_is_changed(held: Playground) -> None:
    found = held.compare({"target": "tosa-1.0+fp"})
    assert found["outputs"][0]["most"] < 1e-5
    assert {"layer_norm", "linear", "gelu", "atan"} <= set(found["nodes"])
    assert held.compare({"options": ["cpu=cortex-a76"]})["outputs"][0]["most"] < 1e-5


def test_a_typed_rule_is_tried_applied_and_drawn(held: Playground) -> None:
    found = held.rule({}, SILU)
    (rule,) = found["rules"]
    assert "not equal" in rule["wrong"] and "1 wrong" in rule["variants"]
    result = found["lowered"]
    assert step(result, "gelu-to-silu")["applied"] == 1
    assert "xnnpack.sigmoid" in result["right"]
    (picture,) = result["pictures"]["gelu-to-silu"]
    assert any("aten.silu" in piece["text"] for piece in picture["after"])
    again = held.rule(result["asked"], SILU.replace("silu.default", "tanh.default"))
    assert again["lowered"]["asked"]["edits"] == result["asked"]["edits"], "it keeps its place"
    assert "xnnpack.tanh" in again["lowered"]["right"]


def test_a_rule_of_nodes_comes_where_nodes_are(held: Playground) -> None:
    text = RULE.format(name="no-gelu", after="xnnpack.tanh(%x)").replace(
        "aten.gelu.default", "xnnpack.gelu"
    )
    found = held.rule({}, text)["lowered"]
    assert step(found, "no-gelu")["applied"] == 1 and "xnnpack.tanh" in found["right"]


@pytest.mark.skipif(importlib.util.find_spec("z3") is None, reason="z3 is not installed")
def test_a_rule_that_is_wrong_is_refuted(held: Playground) -> None:
    held.rule({}, ABS)
    assert held.prover.verdict(ABS.strip(), 120) is not None
    assert "refuted" in str(held.verdicts(ABS)["relu-to-abs"])


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"target": "xnnpak"}, "did you mean 'xnnpack'"),
        ({"options": ["optimize=speeed"]}, "did you mean 'speed'"),
        ({"edits": [["without", "legalize/lower-gelus"]]}, "legalize/lower-gelu"),
        ({"edits": [["move", "fuse-clamp"]]}, "PATH=PASSES is required"),
        ({"edits": [["rm", "fuse-clamp"]]}, "an edit is one of"),
        ({"at": "nowhere"}, "no pass"),
        ({"text": "func.func @forward(", "text_at": ""}, "edited:1"),
        ({"text": FIRST.replace("scale", "none").replace(" dense", " x")}, "edited:"),
        ({"rules": "rule x"}, "x"),
        ({"rules": 3}, "rules is no text"),
        ({"code": "import os"}, "has no 'code'"),
    ],
)
def test_what_is_wrong_is_said(held: Playground, asked: Any, why: str) -> None:
    assert why in said(held.lower, asked)


@pytest.mark.parametrize("after", ["aten.gelus.default(%x)", "open(%x)", "aten.gelu.default(%z)"])
def test_a_rule_that_names_what_there_is_not_is_refused(held: Playground, after: str) -> None:
    assert "rule x" in said(held.rule, {}, RULE.format(name="x", after=after))


def test_a_file_holds_weights_edits_and_rules(held: Playground) -> None:
    ruled = held.rule({}, SILU)["lowered"]
    asked = {**ruled["asked"], "at": "nodes"}
    left = held.lower(asked)["left"]
    asked = {**asked, "text": left.replace("xnnpack.sigmoid", "xnnpack.tanh"), "text_at": "nodes"}
    wanted = held.lower(asked)["right"]
    other = Playground(stepwell.parse(FIRST))
    other.open(held.file(asked))
    assert other.name == "block" and other.lower(other.asked.to_json())["right"] == wanted
    assert "too large for a link" not in wanted and "xnnpack.tanh" in wanted
    assert other.artifact(other.asked.to_json()) == held.artifact(asked)


def test_a_link_holds_a_small_program_whole(held: Playground) -> None:
    link = held.link({"edits": [["without", "legalize/lower-gelu"]]})
    other = Playground(stepwell.parse(FIRST))
    other.open("http://127.0.0.1:1/" + link)
    assert other.lower(other.asked.to_json())["right"] == held.lower(other.asked.to_json())["right"]
    large = torch.export.export(torch.nn.Linear(80, 80), (torch.ones(1, 80),))
    assert "save a file" in said(Playground(stepwell.from_exported_program(large)).link, {})


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"no archive", b"\x80\x04pickle"])
def test_a_damaged_file_or_link_is_refused(data: bytes) -> None:
    assert "save it again" in said(from_file, data)
    assert "no link" in said(from_link, "#play=" + data.decode("latin-1"))


@pytest.fixture(scope="module")
def served() -> Iterator[Playing]:
    with Playing(Playground(stepwell.parse(FIRST), "first")) as playing:
        yield playing


def request(served: Playing, method: str, path: str, body: Any = None, **headers: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)
    data = None if body is None else json.dumps(body)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, data, given)
    answer = connection.getresponse()
    return answer.status, answer.read(), answer


def test_the_page_is_for_who_has_the_token(served: Playing) -> None:
    key = {HEADER.replace("-", "_"): served.token}
    own = f"/?token={served.token}"
    status, page, answer = request(served, "GET", own)
    assert status == 200 and b"http" not in page.split(b"<script")[0]
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    for path in ("/", "/?token=guess", "/?token=" + "ä".encode().hex()):
        assert request(served, "GET", path)[0] == 403
    assert request(served, "GET", own, Host="example.org")[0] == 403
    assert request(served, "POST", "/begin", {})[0] == 403
    assert request(served, "POST", "/begin", {}, **key, Origin="http://example.org")[0] == 403
    assert request(served, "POST", "/begin", {}, **key)[0] == 200
    assert request(served, "POST", "/__init__", {}, **key)[0] == 404
    status, said, _ = request(served, "POST", "/lower", {"target": "no"}, **key)
    assert status == 422 and "no target" in json.loads(said)["problems"][0]["fact"]
    assert served.link.startswith("http://127.0.0.1:") and served.link in served._repr_html_()


@pytest.mark.parametrize("body", ["[]", "3", "null", '"text"', "no", "[" * 100_000, "\xff"])
def test_a_request_that_is_no_object_is_refused(served: Playing, body: str) -> None:
    for action in ("begin", "lower", "rule", "link"):
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)
        connection.request("POST", f"/{action}", body.encode("latin-1"), {HEADER: served.token})
        answer = connection.getresponse()
        assert answer.status == 400 and json.loads(answer.read())["problems"][0]["fact"]


def test_an_action_behind_a_long_one_is_refused_and_readers_are_not(
    served: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.inspection.playground.server.PATIENCE", 0.01)
    key = {HEADER.replace("-", "_"): served.token}
    with served._lock:
        status, said, _ = request(served, "POST", "/lower", {}, **key)
        assert status == 503 and "another action" in json.loads(said)["problems"][0]["fact"]
        assert request(served, "POST", "/begin", {}, **key)[0] == 200
        assert request(served, "POST", "/verdicts", {"text": ""}, **key)[0] == 200


@pytest.mark.parametrize("before", ["", "%a = aten.neg.default(%x)\n    "])
def test_a_rule_without_an_end_is_refused_after_few_applications(
    held: Playground, before: str
) -> None:
    again = f"{before}%y = aten.gelu.default(%{'a' if before else 'x'})"
    rule = RULE.format(name="again", after="%again").replace("%y = %again", again)
    text = said(held.rule, {}, rule)
    applied = re.search(r"again applied (\d+) times without an end", text)
    assert applied and int(applied[1]) < 100


def test_the_command_opens_models_files_and_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Playing, "wait", lambda self: None)
    held = Playground(stepwell.parse(FIRST), "shared")
    (tmp_path / "a.play").write_bytes(held.file({}))
    (tmp_path / "a.mlir").write_text(FIRST)
    for given in ([], [str(tmp_path / "a.play")], [held.link({})], [str(tmp_path / "a.mlir")]):
        assert main(["play", *given]) == 0
        assert "http://127.0.0.1:" in capsys.readouterr().out
    assert main(["play", "--port", "70000"]) == 1 and main(["play", "nothing.pte"]) == 1
