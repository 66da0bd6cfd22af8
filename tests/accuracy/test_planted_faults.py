"""Faults planted into a quantized net are named by the sentence that comes first."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from wrong_rewrites import HalveRelu

import stepwell

WIDTH = 24


class Net(nn.Module):
    """Three linear layers, one of them square."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.mid, self.down = (
            nn.Linear(12, WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, 5),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.mid(torch.relu(self.up(x))))) * 4.0


def batches(count: int, size: float = 1.0) -> list[Any]:
    random = torch.Generator().manual_seed(5)
    return [((size * torch.randn(128, 12, generator=random),), None) for _ in range(count)]


def net() -> Net:
    torch.manual_seed(3)
    return Net().eval()


def quantized(model: nn.Module, size: float = 1.0) -> Any:
    return stepwell.quantize(model, "int8-xnnpack", [x for x, _ in batches(2, size)])


def nodes(graph: Any, word: str) -> list[Any]:
    return [node for node in graph.graph.nodes if word in str(node.target)]


def casts(graph: Any, number: int) -> tuple[Any, Any]:
    """The quantize and the dequantize op of the activation ahead of a linear layer."""
    back = nodes(graph, "aten.linear")[number].args[0]
    return back.args[0], back


def put(node: Any, at: int, value: Any) -> None:
    node.args = (*node.args[:at], value, *node.args[at + 1 :])


def set_weight(graph: Any, number: int, at: int, change: Callable[[Tensor], Tensor]) -> None:
    """Change an operand of the dequantize op of a weight: 0 the integers, 1 the scales."""
    source = nodes(graph, "aten.linear")[number].args[1].args[at]
    setattr(graph, source.target, change(getattr(graph, source.target).clone()))


def outlier(graph: Any) -> Any:
    """Answers for a channel that is 40 times the others, ahead of which nothing was equalized."""
    model = net()
    with torch.no_grad():
        model.up.weight[7] *= 40
        model.up.bias[7] *= 40
        model.mid.weight[:, 7] /= 40
    return model, quantized(model)


def shifted_zero(graph: Any) -> None:
    back = casts(graph, 1)[1]
    put(back, 2, back.args[2] - 9)


def wrong_axis(graph: Any) -> None:
    put(nodes(graph, "aten.linear")[1].args[1], 3, 1)


def clipped_logits(graph: Any) -> None:
    for node in nodes(graph, "quantize_per_tensor")[-2:]:
        put(node, 1, node.args[1] / 4)


def other_scale(graph: Any) -> None:
    back = casts(graph, 2)[1]
    put(back, 1, back.args[1] * 1.8)


def lost_bias(graph: Any) -> None:
    layer = nodes(graph, "aten.linear")[0]
    kept = layer.args[2].target
    part = graph.get_submodule(kept.rpartition(".")[0])
    part.bias = nn.Parameter(torch.zeros_like(part.bias))


def swapped(graph: Any) -> None:
    def swap(weight: Tensor) -> Tensor:
        weight[[2, 11]] = weight[[11, 2]]
        return weight

    set_weight(graph, 1, 0, swap)


def stale(graph: Any) -> None:
    random = torch.Generator().manual_seed(0)
    other = torch.randint(-90, 90, (WIDTH, WIDTH), dtype=torch.int8, generator=random)
    set_weight(graph, 1, 0, lambda _: other)


def no_number(graph: Any) -> None:
    def spoil(scales: Tensor) -> Tensor:
        scales[4] = float("nan")
        return scales

    set_weight(graph, 0, 1, spoil)


def too_wide(graph: Any) -> None:
    for node in casts(graph, 1):
        put(node, 1, node.args[1] * 24)


def bad_calibration(graph: Any) -> Any:
    model = net()
    return model, quantized(model, 0.08)


FAULTS: dict[Callable[[Any], Any], tuple[str, str]] = {
    outlier: ("mid", "channel 7 of its input is"),
    shifted_zero: ("mid", "zero point of its input is off: all numbers are shifted by +9 steps"),
    wrong_axis: ("mid", "scales of its weights lie along axis 1"),
    clipped_logits: ("output", "of its result is clipped"),
    other_scale: ("down", "scale of its input is wrong: numbers come out 1.8 times"),
    lost_bias: ("up", "its bias is lost"),
    swapped: ("mid", "output channels of its weights are swapped: 2 holds 11, 11 holds 2"),
    stale: ("mid", "its weights are not the float model's in"),
    no_number: ("up", "of its weights are no finite numbers"),
    too_wide: ("mid", "the range of its scale is too wide"),
    bad_calibration: ("", "it was calibrated on other data"),
}


@pytest.fixture(scope="module")
def sound() -> Any:
    return quantized(net())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_named(sound: Any, fault: Callable[[Any], Any]) -> None:
    model, graph = net(), copy.deepcopy(sound)
    given = fault(graph)
    if given is not None:
        model, graph = given
    elif hasattr(graph, "recompile"):
        graph.recompile()
    found = stepwell.accuracy(model, "xnnpack", batches(3), quantized=graph, levels=0)
    site, said = FAULTS[fault]
    assert f"`{site}`" in found.sentence or not site, str(found)
    assert said in found.sentence, str(found)


def test_a_wrong_step_of_the_lowering_is_named(sound: Any) -> None:
    found = stepwell.accuracy(
        net(),
        "xnnpack",
        batches(1),
        quantized=copy.deepcopy(sound),
        pipeline=lambda own: own.before("normalize", HalveRelu),
    )
    assert "The stage `typed` loses it, in the pass 'halve-relu'" in found.sentence, str(found)


class Gray(nn.Module):
    """Patches of an image of one channel, then a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.head = nn.Conv2d(1, 64, 4, 4), nn.Linear(256, 6)

    def forward(self, x: Tensor) -> Tensor:
        return 3 * self.head(torch.relu(self.patch(x)).flatten(1))


def test_one_number_in_a_block_of_mx_is_named_with_its_remedy() -> None:
    torch.manual_seed(0)
    data = [((torch.randn(256, 1, 8, 8).round(),), None)]
    with torch.no_grad():
        model = Gray().eval()
        model.head.weight.copy_(model.head.weight.sign() / 16)  # Which fp4 holds as they are.
        model.patch.weight.mul_(4)
    target = "tosa-1.1+fp+mx_common+mx_fp4e2m1"
    found = stepwell.accuracy(model, target, data, levels=0)
    why = found.causes["patch"]
    assert why == "one number stands in each block of 32, for the image has as many channels"
    assert found.remedies["patch"] == "fp8 there costs 1.60 bits a weight"
    assert (found.form == "fp4e2m1" and "`patch` loses" in found.sentence) or found.causes
