"""The judge of quantized programs: what rounding decides is not asked, a defect is found."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # It registers the operators.
from eager import Function
from torch.export import ExportedProgram

import stepwell

from .oracle import Expected
from .quantizing import in_eight_bits
from .source import Program, exported
from .stepping import SLACK, grids
from .stepping import expected as expected_of_steps

TOWER = (
    "v0 = F.conv2d(x0, self.c0, self.c1, 1, 1)",
    "v1 = F.relu(v0)",
    "v2 = F.avg_pool2d(v1, 2)",
    "v3 = F.conv2d(v2, self.c2, None)",
    "v4 = v3 + v2",
)
WEIGHTS = (
    ("self.c0", "parameter(normal(5, (4, 3, 3, 3), f32, scale=0.3))"),
    ("self.c1", "parameter(normal(6, (4,), f32))"),
    ("self.c2", "parameter(normal(7, (4, 4, 1, 1), f32, scale=0.3))"),
)


def tower(by: str) -> tuple[Program, ExportedProgram]:
    inputs = (("x0", "normal(1, (2, 3, 6, 6), f32)"),)
    program = Program.of(inputs, *TOWER, outputs=("v4",), held=WEIGHTS, quantized="static")
    return program, in_eight_bits(program, exported(program)["forward"], by)


def expected(given: Any, ep: ExportedProgram, twice: bool = False) -> Expected:
    """What is right of one call of a quantized graph."""
    program = Program.of((("x0", ""),), outputs=())
    return expected_of_steps(program, (given,), {"forward": ep}, twice)


def activations(ep: ExportedProgram) -> Iterator[Any]:
    """The dequantized activations."""
    for node in ep.graph.nodes:
        if "dequantize_per_tensor" in str(node.target) and node.args[0].op == "call_function":
            yield node


def changed(ep: ExportedProgram, at: int, place: int, value: object) -> ExportedProgram:
    """The program with one argument of one dequantized activation replaced."""
    other = copy.deepcopy(ep)
    node = list(activations(other))[at]
    node.args = (*node.args[:place], value, *node.args[place + 1 :])
    other.graph_module.recompile()
    return other


@pytest.mark.parametrize(("by", "target"), [("xnnpack", "xnnpack"), ("cortex-m", "cortex-m55")])
def test_a_wrong_zero_point_or_scale_is_found_wherever_it_is(by: str, target: str) -> None:
    program, ep = tower(by)
    given = program.given()
    right = expected(given, ep)
    assert right.complaint(stepwell.lower(ep, target).run(*given)) is None
    nodes = list(activations(ep))
    assert len(nodes) >= 4
    for at, node in enumerate(nodes):
        scale, zero = node.args[1:3]
        for place, value in ((2, zero + 1), (2, zero - 1), (1, scale * 1.03)):
            wrong = stepwell.lower(changed(ep, at, place, value), target).run(*given)
            assert right.complaint(wrong) is not None, f"{node}: argument {place} is {value}"


def test_a_wrong_weight_is_found() -> None:
    program, ep = tower("xnnpack")
    given = program.given()
    other = copy.deepcopy(ep)
    tensors: dict[str, Any] = {**other.constants, **other.state_dict}
    (held,) = [v for v in tensors.values() if v.dtype == torch.int8 and v.numel() == 16]
    held.view(-1)[held.view(-1).abs().argmax()] *= -1
    assert expected(given, ep).complaint(stepwell.lower(other, "xnnpack").run(*given)) is not None


def test_a_number_between_two_steps_may_be_either_and_no_other_may() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        ops = torch.ops.quantized_decomposed
        steps = ops.quantize_per_tensor(x, 1.0, 0, -128, 127, torch.int8)
        return ops.dequantize_per_tensor(steps, 1.0, 0, -128, 127, torch.int8)

    x = torch.tensor([0.5 + SLACK / 2, 0.5 - SLACK / 2, 0.5 + 2 * SLACK, 3.2])
    ep = torch.export.export(Function(step), (x,))
    assert grids(ep) == [True]
    right = expected((x,), ep)
    assert right.complaint([torch.tensor([0.0, 1.0, 1.0, 3.0])]) is None
    assert right.complaint([torch.tensor([1.0, 0.0, 1.0, 3.0])]) is None
    for wrong in ([1.0, 0.0, 0.0, 3.0], [1.0, 0.0, 1.0, 4.0], [2.0, 0.0, 1.0, 3.0]):
        assert right.complaint([torch.tensor(wrong)]) is not None


class Layer(torch.nn.Module):
    """A linear layer in int8, its input and its weight at scale 1."""

    def __init__(self, out_scale: float, bias: float, axes: tuple[int, ...]) -> None:
        super().__init__()
        self.out_scale, self.axes = out_scale, axes
        self.register_buffer("weight", torch.ones(1, 2, dtype=torch.int8))
        self.register_buffer("bias", torch.full((1,), bias))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ops = torch.ops.quantized_decomposed
        steps = ops.quantize_per_tensor(x.permute(self.axes), 1.0, 0, -128, 127, torch.int8)
        real = ops.dequantize_per_tensor(steps, 1.0, 0, -128, 127, torch.int8)
        weight = ops.dequantize_per_tensor(self.weight, 1.0, 0, -127, 127, torch.int8)
        y = torch.nn.functional.linear(real, weight, self.bias)
        out = ops.quantize_per_tensor(y, self.out_scale, 0, -128, 127, torch.int8)
        return ops.dequantize_per_tensor(out, self.out_scale, 0, -128, 127, torch.int8)


LAYOUTS = {"rows": (0, 1), "a transposed batch": (1, 0, 2)}
"""PyTorch decomposes a layer of the second into a product and an addition."""


def layer_of(pair: list[float], scale: float, bias: float, layout: str) -> tuple[Any, ...]:
    """Return a layer's input, of equal rows, its program, and a function that makes its results."""
    axes = LAYOUTS[layout]
    x = torch.tensor(pair).expand(*(2, 3, 2)[-len(axes) :]).contiguous()
    ep = torch.export.export(Layer(scale, bias, axes), (x,))
    shape = (*(x.shape[axis] for axis in axes[:-1]), 1)
    return x, ep, lambda value: [torch.full(shape, value)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_bias_may_be_an_integer_of_its_layer(layout: str) -> None:
    """At a scale of 1 for the input and for the weight, a bias of 0.4 is none."""
    x, ep, results = layer_of([1.0, 2.0], 0.25, 0.4, layout)
    right = expected((x,), ep)
    for value in (3.5, 3.0):
        assert right.complaint(results(value)) is None
    for value in (2.5, 4.0):
        assert right.complaint(results(value)) is not None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cmsis_nn_may_round_the_sum_of_a_layer_twice(layout: str) -> None:
    """31 / 64 is 15.5 / 32, then 16 / 32, then 1, as the library's default build has it."""
    x, ep, results = layer_of([15.0, 16.0], 64.0, 0.0, layout)
    made = stepwell.lower(ep, "cortex-m55").run(x)
    assert torch.equal(made[0], results(64.0)[0])
    right = expected((x,), ep, twice=True)
    assert right.complaint(made) is None
    assert right.complaint(results(128.0)) is not None
    assert expected((x,), ep).complaint(made) is not None


def test_roundings_in_doubt_may_fall_to_different_sides() -> None:
    def difference(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        ops = torch.ops.quantized_decomposed
        kind = (1.0, 0, -128, 127, torch.int8)
        x, z = (ops.dequantize_per_tensor(ops.quantize_per_tensor(v, *kind), *kind) for v in (x, z))
        return ops.dequantize_per_tensor(ops.quantize_per_tensor(x - z, *kind), *kind)

    given = (torch.full((8,), 0.5 - 0.9 * SLACK),) * 2
    right = expected(given, torch.export.export(Function(difference), given))
    for value in (0.0, 1.0, -1.0):
        assert right.complaint([torch.full((8,), value)]) is None
    for value in (2.0, -2.0):
        assert right.complaint([torch.full((8,), value)]) is not None
