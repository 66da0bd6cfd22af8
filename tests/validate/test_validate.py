"""`stepwell validate`: verdicts on right and wrong artifacts of several flows."""

import json
import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch import Tensor, nn
from torch.nn import functional as F

import stepwell
from stepwell.backends.executorch.container import Container
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.writing.bundled import bundled
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.cli.main import main
from stepwell.validation.artifacts import engine_process, validate
from stepwell.validation.artifacts.classify import is_tie
from stepwell.validation.artifacts.given import read_inputs
from stepwell.validation.recording import RecordingInterpreter

INF, NAN = float("inf"), float("nan")


class Of(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


class Counting(nn.Module):
    """A sum over calls that begins with twos."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.register_buffer("sum", torch.full((4,), start))

    def forward(self, x: Tensor) -> Tensor:
        self.sum.add_(x)
        return self.sum * 3


def stock(exported: torch.export.ExportedProgram, *, portable: bool = False) -> bytes:
    parts = [] if portable else [XnnpackPartitioner()]
    return to_edge_transform_and_lower(exported, partitioner=parts).to_executorch().buffer


def export(module: nn.Module, *inputs: Tensor, dynamic: Any = None) -> torch.export.ExportedProgram:
    module = module if isinstance(module, torch.fx.GraphModule) else module.eval()
    return torch.export.export(module, inputs, dynamic_shapes=dynamic)


def net() -> nn.Module:
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1)
    made = nn.Sequential(*layers, nn.Flatten(), nn.Linear(144, 10), nn.GELU())
    made[1].running_mean.uniform_(-1, 1)
    made[1].running_var.uniform_(0.5, 2)
    return made.eval()


IMAGE = torch.linspace(-1, 1, 108).reshape(1, 3, 6, 6)


def test_artifacts_of_each_flow_are_right() -> None:
    """Folded norms, other layouts and fused operators are no differences."""
    exported = export(net(), IMAGE)
    program = stepwell.from_exported_program(exported)
    artifacts = {
        "stock": stock(exported),
        "portable": stock(exported, portable=True),
        "own": stepwell.lower(program, "xnnpack").to_pte(),
        "TOSA": stepwell.lower(program, "tosa-1.0+fp").artifact,
    }
    for name, data in artifacts.items():
        found = validate(data, exported)
        assert found.ok, (name, str(found))
        assert found.matched + found.inner == found.values > 0, (name, str(found))
        assert found.sentence.startswith("No difference beyond rounding in "), name
    old = stepwell.read_pte(artifacts["portable"])
    assert validate(artifacts["stock"], old).ok, "an artifact is a source, too"


WRONG: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], bool, str, str, str]] = {
    # (function, inputs, portable, the node, the kind, words of the cause)
    "gelu by tanh": (
        lambda x: F.gelu(x + 1, approximate="tanh"),
        (torch.linspace(-4, 4, 64),), False, "gelu", "known fault", "gelu_by_tanh",
    ),
    "a kernel": (
        lambda x: torch.remainder(x * 2, 3) + 1,
        (torch.arange(-6, 6),), True, "remainder", "known fault", "negative numbers",
    ),
    "a special value": (
        lambda x: torch.exp(x) * 2,
        (torch.tensor([NAN, 4.0] * 8),), False, "exp", "declared deviation", "special values",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_faults_of_the_stock_flow_are_named(name: str, tmp_path: Path) -> None:
    """The verdict names the operator and the cause; its script shows the fault by itself."""
    function, inputs, portable, node, kind, why = WRONG[name]
    exported = export(Of(function), *inputs)
    found = validate(stock(exported, portable=portable), exported)
    assert not found.ok
    assert found.wrong is not None
    assert (found.wrong.node, found.wrong.kind) == (node, kind), str(found)
    assert why in (found.wrong.why or "")
    assert f"`{node}`" in found.sentence
    assert found.script is not None
    found.script.save(tmp_path / "fault.py")
    if not portable:  # Without a delegate a script is the same, and slower to run than to read.
        made = runpy.run_path(str(tmp_path / "fault.py"))
        assert not torch.allclose(made["wanted"], made["found"], 1e-5, 1e-5, equal_nan=True)


def test_a_program_that_ends_the_process() -> None:
    exported = export(Of(lambda x: (x + 1).amax(1)), torch.zeros(0, 3))
    found = validate(stock(exported, portable=True), exported)
    assert found.wrong is not None
    assert found.wrong.kind == "crash"
    assert "aten.amax" in found.wrong.op
    assert "SIGABRT" in found.differences[0].fact


def test_buffers_are_followed_over_calls() -> None:
    exported = export(Counting(2.0), torch.ones(4))
    right = stepwell.lower(exported, "xnnpack").to_pte()
    assert validate(right, exported).ok
    found = validate(stock(exported, portable=True), exported)
    assert found.wrong is not None
    assert found.wrong.node == "sum", str(found)


def test_a_size_that_is_wrong() -> None:
    """Samples have every size that reveals faults, and only the wrong one is reported."""
    tokens = torch.export.Dim("tokens", min=2, max=16)

    def right(x: Tensor) -> Tensor:
        return x.softmax(-1).cumsum(0) + 1

    def wrong(x: Tensor) -> Tensor:
        more = torch.full((3,), 0.5) * (x.shape[0] // 16)
        return x.softmax(-1).cumsum(0) + 1 + more

    x = torch.linspace(-1, 1, 18).reshape(6, 3)
    source, other = (export(Of(f), x, dynamic=(({0: tokens},),)) for f in (right, wrong))
    artifact = stock(other, portable=True)
    assert validate(stock(source, portable=True), source).sizes > 5
    found = validate(artifact, source)
    assert not found.ok
    assert all("largest" in one.sample for one in found.differences), str(found)


def test_a_quantized_artifact_of_a_float_model() -> None:
    """What integers imply is no fault, and how much it is, is said."""
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))
    exported = export(model, torch.ones(2, 32))
    quantized = stepwell.quantize(model, "int8-xnnpack", [torch.randn(2, 32)])
    data = stepwell.lower(export(quantized, torch.randn(2, 32)), "xnnpack").to_pte()
    found = validate(data, exported)
    assert found.ok, str(found)
    assert any("quantized" in note for note in found.notes)


def test_recorded_values_of_a_device(tmp_path: Path) -> None:
    exported = export(net(), IMAGE)
    data = stock(exported)
    program = stepwell.from_exported_program(exported)
    recorder = RecordingInterpreter(program.weights)
    outputs = recorder.call(program.method(), (IMAGE,)).outputs
    inner = [v for v in recorder.values.values() if isinstance(v, Tensor)][:-1]
    good = {"output_0": outputs[0], **{f"value {at}": v for at, v in enumerate(inner)}}
    assert validate(data, exported, recorded=good).ok
    bad = {**good, "output_0": outputs[0] * 1.01}
    found = validate(data, exported, recorded=bad)
    assert found.wrong is not None
    assert found.wrong.node == "gelu", str(found)
    numpy.savez(tmp_path / "device.npz", **{name: v.numpy() for name, v in bad.items()})
    (tmp_path / "net.pte").write_bytes(data)
    torch.export.save(exported, tmp_path / "net.pt2")
    files = [str(tmp_path / name) for name in ("net.pte", "net.pt2", "device.npz")]
    assert main(["validate", *files[:2], "--recorded", files[2], "--trust"]) == 1
    with pytest.raises(stepwell.StepwellError, match="have no output_0"):
        validate(data, exported, recorded={"x": IMAGE})


def test_what_surrounds_opaque_delegates() -> None:
    """Their results are taken for values of the model, and what follows is compared."""

    def model(x: Tensor, by: float = 0.5) -> Tensor:
        return torch.remainder(F.gelu(x @ x.T), by).relu() + 1

    exported = export(Of(model), torch.linspace(-1, 1, 32).reshape(4, 8))
    container = read_container(bytearray(stock(exported)))

    def closed(source: Container) -> bytes:
        methods = [
            replace(m, delegates=tuple(replace(d, backend="AnotherBackend") for d in m.delegates))
            for m in source.methods
        ]
        return to_bytes(replace(source, methods=tuple(methods)))

    assert container.methods[0].delegates
    found = validate(closed(container), exported)
    assert found.ok, str(found)
    assert "not compared: 3 delegates of AnotherBackend" in found.sentence
    other = export(Of(lambda x: model(x, 0.51)), torch.linspace(-1, 1, 32).reshape(4, 8))
    found = validate(closed(read_container(bytearray(stock(other)))), exported)
    assert not found.ok


def steep(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 0.5 * x)


RIGHT_AND_WRONG: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    # (the model, what the artifact computes): each has its numbers, or looks like rounding
    "another order": (steep, lambda x: steep(x).flip(0)),
    "another order of halves": (lambda x: x.half() * 3, lambda x: x.half().flip(0) * 3),
    "integers in another order": (
        lambda x: (x.sin() * 4e6).to(torch.int32),
        lambda x: (x.sin() * 4e6).to(torch.int32).flip(0),
    ),
    "the least for the greatest, masked": (
        lambda x: x.masked_fill(x > 1, -INF).argmax(-1),
        lambda x: x.masked_fill(x > 1, -INF).argmin(-1),
    ),
    "another kind of number": (
        lambda x: (x * 4).round(),
        lambda x: (x * 4).round().to(torch.int64),
    ),
    "an input that is not written": (
        lambda x: x.mul_(2).sum(-1),
        lambda x: (x * 2).sum(-1),
    ),
    "another constant": (lambda x: (x + 1, 3), lambda x: (x + 1, 4)),
}


@pytest.mark.parametrize("name", RIGHT_AND_WRONG)
def test_differences_that_are_easily_taken_for_none(name: str) -> None:
    """The right program is right, with constants among its results, and the wrong one is wrong."""
    x = torch.linspace(-2, 2, 36).reshape(6, 6).cos()
    right, wrong = (export(Of(function), x.clone()) for function in RIGHT_AND_WRONG[name])
    found = validate(stock(right, portable=True), right)
    assert found.ok, str(found)
    found = validate(stock(wrong, portable=True), right)
    assert not found.ok, str(found)


def test_quantization_explains_no_other_weights() -> None:
    torch.manual_seed(0)
    one, other = (nn.Sequential(nn.Linear(16, 16)) for _ in range(2))
    quantized = stepwell.quantize(other, "int8-xnnpack", [torch.randn(4, 16)])
    data = stepwell.lower(export(quantized, torch.randn(4, 16)), "xnnpack").to_pte()
    assert validate(data, export(other, torch.randn(4, 16))).ok
    assert not validate(data, export(one, torch.randn(4, 16))).ok


def test_a_call_that_was_interrupted_leaves_nothing_for_the_next() -> None:
    exported = export(Of(lambda x: x + 1), torch.ones(2))
    calls = [engine_process.EngineCall("forward", (torch.ones(2),))] * 2
    data = stock(exported, portable=True)
    engine_process.run_calls(data, calls)
    engine_process._SERVERS[-1].process.kill()
    engine_process._SERVERS[-1].process.wait()
    with pytest.raises(stepwell.StepwellError, match="the process that runs programs ended"):
        engine_process.run_calls(data, calls)
    assert len(engine_process.run_calls(data, calls)) == 2


def test_equal_scores_in_another_order() -> None:
    """A rank that rounding decides is recognized by its scores."""
    program = stepwell.from_exported_program(
        export(Of(lambda x: list(torch.topk(x * 2, 2))), torch.tensor([1.0, 3.0, 3.0]))
    )
    recorder = RecordingInterpreter(program.weights)
    x = torch.tensor([1.0, 3.0, 3.0])
    recorder.values[program.method().body.block.args[0]] = x
    recorder.call(program.method(), (x,))
    scores = torch.tensor([6.0, 6.0])

    def verdict(places: list[int]) -> bool:
        found = (scores, torch.tensor(places))
        return is_tie(program.method(), recorder.values, found, lambda at, one: 1e-6)

    assert verdict([2, 1])
    assert not verdict([0, 1])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It writes what a build needs, and takes a user's inputs, by a file or by a callable."""
    model = tmp_path / "model.py"
    model.write_text(
        "import torch\n"
        "def make():\n"
        "    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU('tanh')), "
        "(torch.randn(2, 4),)\n"
        "def batches():\n"
        "    return [(torch.randn(2, 4),), (torch.ones(2, 4),)]\n"
    )
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 4), nn.GELU("tanh"))
    exported = export(module, torch.randn(2, 4))
    torch.export.save(exported, tmp_path / "net.pt2")
    case = torch.full((2, 4), 0.25)
    made = bundled(stock(exported), {"forward": [((case,), (module(case),))]})
    (tmp_path / "net.bpte").write_bytes(made)
    files = {name: tmp_path / f"out.{name}" for name in ("json", "junit", "html")}
    told = [f"--{name}={path}" for name, path in files.items()]
    numpy.savez(tmp_path / "x.npz", numpy.ones((2, 4), numpy.float32))
    command = ["validate", str(tmp_path / "net.bpte"), str(tmp_path / "net.pt2")]
    assert main([*command, "--inputs", str(tmp_path / "x.npz"), *told]) == 1
    assert "Wrong: `1`" in capsys.readouterr().out
    held = json.loads(files["json"].read_text())
    assert held["result"]["wrong"]["node"] == "gelu"
    assert held["exit"] == 1
    assert "<failure message=" in files["junit"].read_text()
    assert "difference of the artifact" in files["html"].read_text()
    assert len(read_inputs(f"{model}:batches", 1)) == 2
    numpy.savez(tmp_path / "x.npz", numpy.ones(3), numpy.ones(3), numpy.ones(3))
    assert main([*command, "--inputs", str(model)]) == 1
    with pytest.raises(stepwell.StepwellError, match="3 arrays, and the method takes 2"):
        read_inputs(str(tmp_path / "x.npz"), 2)


def test_another_model_is_refused() -> None:
    data = stock(export(Of(lambda x: x + 1), torch.ones(2)))
    other = export(Of(lambda x, y: x + y), torch.ones(2), torch.ones(2))
    with pytest.raises(stepwell.StepwellError, match="takes 1 inputs, the source's takes 2"):
        validate(data, other)
    with pytest.raises(stepwell.StepwellError, match="does not say what it takes"):
        validate(data, Of(lambda x: x + 1))
    assert validate(data, Of(lambda x: x + 1), (torch.ones(2),)).ok
