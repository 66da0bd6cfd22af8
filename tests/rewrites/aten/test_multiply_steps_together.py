"""Steps meet their weights at once where that takes less."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases
from torch import nn

import stepwell
from stepwell.translate.rewrites.layers.multiply_steps_together import RULES

test_multiply_steps_together = cases(
    RULES,
    """
steps of one weight are one product -> applied 2 times
    %as = aten.slice.Tensor(%x: f32[2, 3, 32], 1, 0, 1, 1)
    %a = aten.linear.default(%as, %w: weight f32[64, 32])
    %bs = aten.slice.Tensor(%x, 1, 2, 3, 1)
    %b = aten.linear.default(%bs, %w)
    %y = aten.add.Tensor(%a, %b)
steps of two weights -> refused: no less
    %as = aten.slice.Tensor(%x: f32[2, 3, 32], 1, 0, 1, 1)
    %a = aten.linear.default(%as, %w: weight f32[64, 32])
    %bs = aten.slice.Tensor(%x, 1, 2, 3, 1)
    %b = aten.linear.default(%bs, %v: weight f32[64, 32])
    %y = aten.add.Tensor(%a, %b)
parts along two axes -> refused: no less
    %as = aten.slice.Tensor(%x: f32[2, 3, 32], 1, 0, 1, 1)
    %a = aten.linear.default(%as, %w: weight f32[64, 32])
    %bs = aten.slice.Tensor(%x, 0, 0, 1, 1)
    %b = aten.linear.default(%bs, %w)
    %y = aten.add.Tensor(%a, %b)
few steps of many -> refused: no less
    %as = aten.slice.Tensor(%x: f32[2, 900, 32], 1, 0, 1, 1)
    %a = aten.linear.default(%as, %w: weight f32[64, 32])
    %bs = aten.slice.Tensor(%x, 1, 2, 3, 1)
    %b = aten.linear.default(%bs, %w)
    %y = aten.add.Tensor(%a, %b)
parts of the features -> refused: features
    %s = aten.slice.Tensor(%x: f32[2, 6], 1, 0, 2, 1)
    %y = aten.linear.default(%s, %w: weight f32[4, 2])
a layer of one output -> refused: vector
    %as = aten.slice.Tensor(%x: f32[2, 3, 32], 1, 0, 1, 1)
    %y = aten.linear.default(%as, %w: weight f32[32])
""",
)


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
