"""Steps meet their weights at once where that takes less."""

from typing import Any

import pytest
import torch
from torch import nn

import stepwell
from stepwell.translate.rewrites.layers.multiply_steps_together import RULES

(STEPS,) = (rule() for rule in RULES)
X, PART, GIVEN = "tensor<2x3x32xf32>", "tensor<2x1x32xf32>", "tensor<2x1x64xf32>"
W = '%{} = stepwell.weight <"{}"> "parameter" : tensor<64x32xf32>'
R, Q = "tensor<2x6xf32>", "tensor<2x2xf32>"


def step(name: str, at: int, weight: str = "w") -> tuple[str, str]:
    return (
        f"%{name}s = aten.slice.Tensor(%x, 1, {at}, {at + 1}, 1) : ({X}) -> {PART}",
        f"%{name} = aten.linear.default(%{name}s, %{weight}) : ({PART}, tensor<64x32xf32>) -> {GIVEN}",
    )


def added(of: str) -> str:
    return f"%y = aten.add.Tensor(%a, %b) : ({of}, {of}) -> {of}"


def test_steps_of_one_weight_are_one_product(apply: Any, method: Any) -> None:
    lines = W.format("w", "w"), *step("a", 0), *step("b", 2), added(GIVEN)
    assert apply(method(f"%x: {X}", *lines, gives=GIVEN), STEPS).count == 2


def test_steps_of_two_weights_stay(refused: Any, method: Any) -> None:
    weights = W.format("w", "w"), W.format("v", "v")
    lines = *weights, *step("a", 0), *step("b", 2, "v"), added(GIVEN)
    refused(method(f"%x: {X}", *lines, gives=GIVEN), STEPS, "no less")


def test_parts_along_two_axes_stay(refused: Any, method: Any) -> None:
    other = (
        f"%bs = aten.slice.Tensor(%x, 0, 0, 1, 1) : ({X}) -> tensor<1x3x32xf32>",
        "%b = aten.linear.default(%bs, %w) : (tensor<1x3x32xf32>, tensor<64x32xf32>) -> tensor<1x3x64xf32>",
        f"%y = aten.add.Tensor(%a, %b) : ({GIVEN}, tensor<1x3x64xf32>) -> tensor<2x3x64xf32>",
    )
    text = method(f"%x: {X}", W.format("w", "w"), *step("a", 0), *other, gives="tensor<2x3x64xf32>")
    refused(text, STEPS, "no less")


def test_few_steps_of_many_stay(refused: Any, method: Any) -> None:
    lines = [W.format("w", "w"), *step("a", 0), *step("b", 2), added(GIVEN)]
    many = [line.replace("2x3x32", "2x900x32") for line in lines]
    refused(method("%x: tensor<2x900x32xf32>", *many, gives=GIVEN), STEPS, "no less")


def test_parts_of_the_features_stay(refused: Any, method: Any) -> None:
    part = f"%s = aten.slice.Tensor(%x, 1, 0, 2, 1) : ({R}) -> {Q}"
    weight = '%w = stepwell.weight <"w"> "parameter" : tensor<4x2xf32>'
    layer = f"%y = aten.linear.default(%s, %w) : ({Q}, tensor<4x2xf32>) -> tensor<2x4xf32>"
    refused(method(f"%x: {R}", weight, part, layer, gives="tensor<2x4xf32>"), STEPS, "features")


def test_a_layer_of_one_output_stays(refused: Any, method: Any) -> None:
    weight = '%w = stepwell.weight <"w"> "parameter" : tensor<32xf32>'
    part, _ = step("a", 0)
    layer = f"%y = aten.linear.default(%as, %w) : ({PART}, tensor<32xf32>) -> tensor<2x1xf32>"
    refused(method(f"%x: {X}", weight, part, layer, gives="tensor<2x1xf32>"), STEPS, "vector")


class Called(nn.Module):
    """A cell, called for each step by hand."""

    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state: Any = None
        for each in x.unbind(1):
            state = self.cell(each, state)
        return state[0] if isinstance(state, tuple) else state


CELLS = [(nn.LSTMCell, 1), (nn.GRUCell, 2), (nn.RNNCell, 1)]
"""Cells, and the products of a state: a GRU's gates and its new state have one each."""


@pytest.mark.parametrize(("cell", "products"), CELLS)
def test_a_cell_called_by_hand_multiplies_its_inputs_at_once(cell: Any, products: int) -> None:
    net, x = Called(cell(32, 48)).eval(), torch.randn(1, 12, 32)
    lowered = stepwell.lower(torch.export.export(net, (x,)), "xnnpack")
    assert (
        str(lowered.program.text()).count("xnnpack.fully_connected") == 1 + 11 * products
    )  # The first state is zero.
    torch.testing.assert_close(lowered.run(x)[0], net(x), rtol=1e-4, atol=1e-5)
