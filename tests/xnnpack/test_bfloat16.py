"""Layers of bfloat16: XNNPACK's own node, with weights as they are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import stepwell
from stepwell.dialects.xnnpack import FullyConnected
from stepwell.ir.dtypes import bf16
from stepwell.ir.types import element


class Residual(nn.Module):
    """A gated layer with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 48)
        self.down = nn.Linear(48, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))


NETS = {
    "a layer of each input rank above one": nn.Linear(16, 24),
    "a rectifier between two layers": nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)),
    "a curve between two layers": nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)),
    "views between two layers": nn.Sequential(
        nn.Linear(32, 64), nn.Unflatten(-1, (8, 8)), nn.Linear(8, 5, bias=False), nn.Flatten(-2)
    ),
    "a residual connection": Residual(),
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
def test_layers_of_bfloat16_are_nodes_of_one_delegate(name: str, is_dynamic: bool) -> None:
    torch.manual_seed(0)
    net = NETS[name].eval().bfloat16()
    first = next(module for module in net.modules() if isinstance(module, nn.Linear))
    sizes = {first.in_features: first.in_features}
    x = torch.randn(3, 7, *sizes).bfloat16()
    rows = torch.export.Dim("rows", min=2, max=64)
    shapes = ({1: rows},) if is_dynamic else None
    lowered = stepwell.lower(torch.export.export(net, (x,), dynamic_shapes=shapes), "xnnpack")
    text = str(lowered.program)
    count = sum(isinstance(module, nn.Linear) for module in net.modules())
    assert text.count("xnnpack.delegate(") == 1
    layers = [op for op in lowered.program.module.walk() if isinstance(op, FullyConnected)]
    assert sum(element(op.filter.type) == bf16 for op in layers) == count
    assert "aten." not in text
    pte = lowered.to_pte()
    for given in (x, torch.randn(3, 40, *sizes).bfloat16())[: 1 + is_dynamic]:
        (result,) = stepwell.run_pte(pte, (given,))
        exact = net.double()(given.double())
        eager = net.bfloat16()(given)
        assert result.dtype == torch.bfloat16
        error = (result.double() - exact).abs().max()
        bound = (eager.double() - exact).abs().max() + 2**-8 * exact.abs().max()
        assert error <= bound


def test_a_rounding_that_the_model_asks_for_is_kept() -> None:
    class Rounded(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x).bfloat16().float() + 1

    x = torch.randn(4, 9)
    lowered = stepwell.lower(torch.export.export(Rounded(), (x,)), "xnnpack")
    (result,) = stepwell.run_pte(lowered.to_pte(), (x,))
    torch.testing.assert_close(result, Rounded()(x), rtol=0, atol=0)


def test_repetition_of_bfloat16_is_left_outside_because_a_node_repeats_by_a_product() -> None:
    class Repeated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x.repeat_interleave(3, dim=0))

    x = torch.randn(4, 8).bfloat16()
    rows = torch.export.Dim("rows", min=2, max=64)
    net = Repeated().bfloat16()
    exported = torch.export.export(net, (x,), dynamic_shapes=({0: rows},))
    lowered = stepwell.lower(exported, "xnnpack")
    assert not lowered.program.context.left_alone
    (result,) = stepwell.run_pte(lowered.to_pte(), (x,))
    torch.testing.assert_close(result, net(x), rtol=2**-7, atol=2**-7)
