"""What MX costs a model, layer by layer, and the smallest payloads within a budget."""

from typing import Any

import pytest
import torch
from torch import nn

import stepwell
from stepwell.dialects.tosa_mxfp.payloads import PAYLOADS, payload_named
from stepwell.translate.mxfp import to_mxfp
from stepwell.translate.mxfp.accuracy import LayerAccuracy, mx_accuracy


class Net(nn.Module):
    """A convolution, two linear layers and a product of activations."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.up, self.down = nn.Conv2d(32, 8, 1), nn.Linear(64, 96), nn.Linear(96, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.conv(x).flatten(2)
        y = rows + 0.5 * self.down(torch.relu(self.up(rows)))
        return torch.bmm(y, y.transpose(1, 2)) / 64


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(1)
    return Net().eval()


def inputs(seed: int, count: int) -> list[tuple[torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(1, 32, 8, 8, generator=generator),) for _ in range(count)]


def error(given: Any, expected: torch.Tensor) -> float:
    return float((given - expected).norm() / expected.norm())


def test_each_layer_has_an_error_in_each_payload(net: Net) -> None:
    found = mx_accuracy(net, inputs(0, 2))
    assert [(a.name, a.kind) for a in found.layers] == [
        ("conv", "conv2d"),
        ("up", "linear"),
        ("down", "linear"),
        ("bmm", "matmul"),
    ]
    for layer in found.layers:
        assert set(layer.errors) == set(PAYLOADS)
        assert layer.errors["fp8e4m3"] < layer.errors["fp8e5m2"] < layer.errors["fp4e2m1"]
    assert "fp6e2m3" in str(found) and "down" in str(found)
    for layer in mx_accuracy(net, inputs(0, 2), form="operators").layers:
        assert ("mxint8" in layer.errors) == (layer.kind != "conv2d")


def test_an_error_is_that_of_the_layer_alone(net: Net) -> None:
    (sample,) = inputs(0, 1)
    (layer,) = [a for a in mx_accuracy(net, [sample]).layers if a.name == "up"]
    with torch.no_grad():
        rows = net.conv(sample[0]).flatten(2)
        moved = error(to_mxfp(net.up, "fp6e3m2")(rows), net.up(rows))
    assert layer.errors["fp6e3m2"] == pytest.approx(moved, rel=1e-3)


def test_a_program_that_is_mx_already_says_in_what(net: Net) -> None:
    exported = torch.export.export(net, inputs(0, 1)[0])
    found = mx_accuracy(to_mxfp(exported, {"up": "fp4e2m1"}), inputs(0, 1))
    assert [a.payload for a in found.layers if a.name == "up"] == ["fp4e2m1"]


def test_the_smallest_payload_is_the_one_of_fewest_bits_then_of_least_error() -> None:
    layer = LayerAccuracy(
        "", "linear", "", {"mxint8": 0.01, "fp6e2m3": 0.04, "fp6e3m2": 0.07, "fp4e2m1": 0.15}
    )
    assert layer.smallest(0.2) == "fp4e2m1" and layer.smallest(0.1) == "fp6e2m3"
    assert layer.smallest(0.02) == "mxint8" and layer.smallest(0.001) is None


@pytest.mark.parametrize("whole", [True, False])
def test_a_budget_holds_on_held_out_inputs_and_a_smaller_one_takes_more_bits(
    net: Net, whole: bool
) -> None:
    samples = inputs(0, 3)
    model: Any = torch.export.export(net, samples[0]) if whole else net
    before = 0
    for budget in (0.2, 0.06, 0.02):
        given = to_mxfp(
            model, error_budget=budget, samples=samples, convolutions=True, attention=whole
        )
        if whole:
            ops = [op for op in given.method().walk() if op.name.startswith("stepwell_mx")]
            chosen = {str(i): op.arg("payload") for i, op in enumerate(ops)}
        else:
            named = dict(given.named_modules()).items()
            chosen = {name: m.payload for name, m in named if hasattr(m, "payload")}
        with torch.no_grad():
            for x in inputs(99, 4):
                y = given.run(*x)[0] if whole else given(*x)
                assert error(y, net(*x)) <= budget
        layers = 4 if whole else 3
        bits = sum(payload_named(p).bits for p in chosen.values()) + 32 * (layers - len(chosen))
        assert bits >= before
        before = bits
    assert before > 4 * layers


def test_a_budget_that_nothing_meets_is_an_error(net: Net) -> None:
    with pytest.raises(stepwell.StepwellError, match="by more than the relative error 1e-09"):
        to_mxfp(net, error_budget=1e-9, samples=inputs(0, 1))
    with pytest.raises(stepwell.StepwellError, match="samples"):
        to_mxfp(net, error_budget=0.1)


def test_a_check_for_an_mx_target_reports_each_layer(net: Net) -> None:
    program = to_mxfp(torch.export.export(net, inputs(0, 1)[0]), "fp8e4m3", attention=True)
    result = stepwell.check(program, "tosa-1.1+fp+mxfp", inputs=inputs(0, 1)[0])
    assert result.ok, str(result)
    assert "fp4e2m1" in result.accuracy and "fp8e4m3" in str(result).splitlines()[-1]
    assert result.accuracy in result.to_html()
