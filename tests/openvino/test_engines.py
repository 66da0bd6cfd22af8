"""The target `xnnpack+openvino`: which parts go to which engine, and what they compute."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from eager import assert_as_eager, lower
from torch import Tensor, nn

import stepwell
from quantized import cnn_per_channel
from stepwell.dialects.xnnpack import DelegateOp as XnnpackDelegate
from stepwell.integrations.openvino import emit
from stepwell.integrations.openvino.dialect import DelegateOp
from stepwell.integrations.openvino.engines import choose
from stepwell.integrations.openvino.engines.costs import EngineCosts, costs_for, load

HAS_OPENVINO = importlib.util.find_spec("openvino") is not None
TARGET = "xnnpack+openvino"


class Net(nn.Module):
    """Convolutions, then linear layers, then convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 8, 3))
        self.two = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.three = nn.Conv2d(8, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(x)
        y = self.two(x.flatten(2).transpose(1, 2)).transpose(1, 2)
        return self.three(y.view(x.shape) + x)


def engines(lowered: stepwell.Lowered) -> str:
    """The delegates' engines in order: `x` or `o`."""
    kinds = {XnnpackDelegate: "x", DelegateOp: "o"}
    ops = lowered.program.method().body.block.ops
    return "".join(kinds[type(op)] for op in ops if type(op) in kinds)


def rates(convolution: float, linear: float) -> dict[str, float]:
    others = dict.fromkeys("depthwise attention norm addition function movement".split(), 0.1)
    return {"convolution": convolution, "pointwise": convolution, "linear": linear, **others}


def stated(monkeypatch: pytest.MonkeyPatch, call: float, *on: dict[str, float]) -> None:
    costs = EngineCosts(call, 0.0, dict(zip(("xnnpack", "openvino"), on, strict=True)))
    monkeypatch.setattr(choose, "costs_for", lambda context: [costs])


@pytest.mark.parametrize(
    ("call", "on_xnnpack", "on_openvino", "expected"),
    [
        (10.0, rates(1, 1), rates(0.1, 9), "oxo"),
        (10.0, rates(1, 1), rates(9, 0.1), "xox"),
        (10.0, rates(1, 1), rates(0.1, 0.1), "o"),
        (10.0, rates(1, 1), rates(1, 1), "x"),
        (1e9, rates(1, 1), rates(0.1, 9), "x"),
    ],
)
def test_parts_go_where_they_are_faster(
    call: float, on_xnnpack: Any, on_openvino: Any, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stated(monkeypatch, call, on_xnnpack, on_openvino)
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(1, 3, 8, 8)
    lowered = lower(model, x, target=TARGET)
    assert engines(lowered) == expected
    torch.testing.assert_close(lowered.program.run(x)[0], model(x), rtol=1e-4, atol=1e-5)
    assert str(stepwell.parse(str(lowered.program), lowered.program.weights)) == str(
        lowered.program
    )
    if HAS_OPENVINO:
        assert_as_eager(lowered, model, x, rtol=1e-4, atol=1e-5)


def test_quantized_layers_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cut is at a float: each side quantizes what its layers read."""
    stated(monkeypatch, 10.0, rates(1, 1), rates(0.1, 9))
    program = cnn_per_channel()
    lowered = stepwell.lower(program, TARGET)
    text = str(lowered.program)
    assert engines(lowered) == "ox"
    assert text.count("openvino.FakeQuantize(") == 5
    (layer,) = (line for line in text.splitlines() if "xnnpack.fully_connected(" in line)
    assert layer.count("!quant.uniform<i8") == 3
    x = torch.randn(1, 3, 16, 16)
    wanted = program.module()(x)
    step = float(wanted.unique().diff().min())
    found = lowered.run(x)[0] if HAS_OPENVINO else lowered.program.run(x)[0]
    assert float((found - wanted).abs().max()) <= 2.01 * step


def test_symbolic_sizes_cross_the_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    stated(monkeypatch, 10.0, rates(1, 1), rates(0.1, 9))
    model, batch = Net().eval(), torch.export.Dim("batch", min=1, max=4)
    lowered = lower(model, torch.randn(2, 3, 8, 8), target=TARGET, dynamic={0: batch})
    assert "o" in engines(lowered)
    for size in (1, 4) if HAS_OPENVINO else ():
        x = torch.randn(size, 3, 8, 8)
        assert_as_eager(lowered, model, x, rtol=1e-4, atol=1e-5)


def test_a_cpu_without_costs_keeps_everything_on_xnnpack() -> None:
    lowered = lower(Net(), torch.randn(1, 3, 8, 8), target=TARGET, cpu="cortex-a76")
    assert engines(lowered) == "x"


def test_tables_of_both_x86_kinds_have_the_same_kinds_of_operators() -> None:
    tables = [load(kind) for kind in ("x86-avx2", "x86-avx512-vnni")]
    assert all(tables)
    names = {frozenset(rates) for table in tables if table for rates in table.rates.values()}
    assert len(names) == 1


@pytest.mark.skipif(not HAS_OPENVINO, reason=emit.INSTALL)
def test_without_a_named_cpu_both_tables_decide() -> None:
    program = lower(Net(), torch.randn(1, 3, 8, 8), target=TARGET).program
    assert len(costs_for(program)) == 2
