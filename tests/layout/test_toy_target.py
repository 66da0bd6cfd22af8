"""The target of `toy3.py` loses its transposes, its scales and its casts to the engines."""

from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # pyright: ignore[reportUnusedImport]  # its ops
from torch.export import export

import stepwell
from stepwell import History, Program
from stepwell.ir.axes.maps import Order, inverse
from stepwell.ir.rewriting.rewrite import GreedyRewrites
from stepwell.translate.rewrites.layers.fold_affine_into_layer import FoldAffineIntoLayer
from stepwell.translate.rewrites.quant import TYPE_QUANTIZATION

from .toy3 import Lower, LowerQuantized, Place

STEPS = (
    TYPE_QUANTIZATION,
    GreedyRewrites("layers", (LowerQuantized(), FoldAffineIntoLayer())),
    GreedyRewrites("lower", (Lower(),)),
    Place(),
    GreedyRewrites("merge", (Lower(),)),
)


class Net(torch.nn.Module):
    """A row of channels is scaled, moved, multiplied by a matrix, and moved back."""

    def __init__(self, order: Order) -> None:
        super().__init__()
        self.order, self.w = order, torch.nn.Parameter(torch.randn(4, 4))
        self.g = torch.nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows = torch.nn.functional.linear((x * self.g).permute(self.order), self.w)
        return (rows * y.permute(self.order)).permute(inverse(self.order))


def lowered(net: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[Program, list[str]]:
    """The program on the toy target, and the ops of it that somebody reads."""
    program = stepwell.from_exported_program(export(net, inputs))
    for step in STEPS:
        step.apply(program, History())
    ops = program.methods["forward"].body.block.ops
    return program, [op.name for op in ops if any(result.first_use for result in op.results)]


@pytest.mark.parametrize(("order", "left"), [((1, 0, 2), 0), ((0, 2, 1), 2)])
def test_three_ops_of_a_stranger_lose_the_transposes_that_a_cut_can_spare(
    order: Order, left: int
) -> None:
    """A product of rows turns where they stay rows, and stays where they do not."""
    net, inputs = Net(order), (torch.randn(2, 4, 4), torch.randn(2, 4, 4))
    program, ops = lowered(net, inputs)
    assert ops.count("toy3.turn") == left
    torch.testing.assert_close(program.run(*inputs)[0], net(*inputs))


def test_the_scale_of_channels_goes_into_the_layer_behind_what_moves_them() -> None:
    net, inputs = Net((1, 0, 2)), (torch.randn(2, 4, 4), torch.randn(2, 4, 4))
    _, ops = lowered(net, inputs)
    assert ops.count("toy3.mul") == 1 and ops.count("toy3.linear") == 1


class Quantized(torch.nn.Module):
    """A linear layer as PT2E writes it, on int8."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Buffer(torch.randint(-127, 128, (3, 4), dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ops: Any = torch.ops.quantized_decomposed
        x = cast_and_back(x, 0.05, -3)
        w = ops.dequantize_per_tensor.default(self.w, 0.01, 0, -127, 127, torch.int8)
        return cast_and_back(torch.nn.functional.linear(x, w), 0.1, 4)


def cast_and_back(x: torch.Tensor, scale: float, zero: int) -> torch.Tensor:
    ops: Any = torch.ops.quantized_decomposed
    stored = ops.quantize_per_tensor.default(x, scale, zero, -128, 127, torch.int8)
    return ops.dequantize_per_tensor.default(stored, scale, zero, -128, 127, torch.int8)


def test_a_quantized_layer_becomes_the_op_on_its_integers() -> None:
    net, inputs = Quantized(), (torch.randn(2, 4),)
    program, ops = lowered(net, inputs)
    assert ops.count("toy3.linear") == 1 and "aten.linear.default" not in ops
    assert torch.equal(program.run(*inputs)[0], net(*inputs))
