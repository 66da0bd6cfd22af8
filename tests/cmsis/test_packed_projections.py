"""Packed projections become a layer for each part: no operator of an attention is left in moves."""

from collections import Counter
from typing import Any

import pytest
import torch
from sampled import sampled
from torch import Tensor, nn
from torch.export import ExportedProgram, export
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import stepwell
from stepwell.backends.cortex_m.emit import to_pte
from stepwell.pipelines.arm import cortex_m_pipeline


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class Packed(nn.Module):
    """A layer of which `take` reads parts."""

    def __init__(self, take: Any, features: int = 12) -> None:
        super().__init__()
        self.layer, self.take = nn.Linear(8, features), take

    def forward(self, x: Tensor) -> Tensor:
        return self.take(self.layer(x))


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def quantized(module: nn.Module, x: Tensor, quantizer: str) -> ExportedProgram:
    module.eval()
    if quantizer == "ours":
        return export(stepwell.quantize(module, "int8-cortex-m", [x]), (x,))
    from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer

    graph = export(module, (x,)).module(check_guards=False)
    prepared = prepare_pt2e(graph, CortexMQuantizer())
    prepared(x)
    return export(convert_pt2e(prepared), (x,))


def lowered_both(program: ExportedProgram) -> tuple[Any, Any]:
    """With parts of the layer, and with parts of its result."""
    fused = cortex_m_pipeline("cortex-m55", io="int8").without("split-projections/split-projection")
    lower = stepwell.lower
    return lower(program, "cortex-m55", io="int8"), lower(program, "cortex-m55", pipeline=fused)


def layers(lowered: Any) -> int:
    names = Counter(op.name for op in lowered.program.module.walk())
    return names["cmsis.quantized_linear"]


@pytest.mark.parametrize(
    ("make", "shape", "more"),
    [(Attention, (1, 6, 16), 2), (encoder, (1, 16, 32), 4)],
)
@pytest.mark.parametrize("quantizer", sampled(["ours", "stock"], "ours"))
def test_an_attention_is_split_without_changing_a_bit(
    make: Any, shape: tuple[int, ...], more: int, quantizer: str
) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    split, fused = lowered_both(quantized(make(), x, quantizer))
    assert layers(split) - layers(fused) == more
    assert not split.report.outside["aten.select.int"] and fused.report.outside["aten.select.int"]
    if quantizer == "ours":
        assert not split.report.outside
    data = torch.randint(-128, 128, shape, dtype=torch.int8)
    (made,), (wanted,) = split.program.run(data), fused.program.run(data)
    assert torch.equal(made, wanted)
    assert torch.equal(stepwell.read_pte(to_pte(split.program)).run(data)[0], wanted)


TAKEN = {
    "parts of each row": (lambda y: y[..., :4] * y[..., 4:8], 2),
    "parts of unflattened rows": (lambda y: (z := y.view(1, 5, 3, 4))[:, :, 0] * z[:, :, 2], 2),
    "the same part twice": (lambda y: y[..., :4] * torch.relu(y[..., :4]), 1),
    "every second feature": (lambda y: y[..., ::2] * y[..., 1::2], 1),
    "parts that overlap": (lambda y: y[..., :6] * y[..., 4:10], 1),
    "some rows": (lambda y: y[:, :2] * y[:, 2:4], 1),
    "the whole, too": (lambda y: torch.relu(y[..., :1]) * y, 1),
}


@pytest.mark.parametrize("name", TAKEN)
def test_only_parts_of_every_row_split_a_layer(name: str) -> None:
    take, count = TAKEN[name]
    torch.manual_seed(0)
    x = torch.randn(1, 5, 8)
    split, fused = lowered_both(quantized(Packed(take), x, "ours"))
    assert (layers(split), layers(fused)) == (count, 1)
    data = torch.randint(-128, 128, x.shape, dtype=torch.int8)
    assert torch.equal(split.program.run(data)[0], fused.program.run(data)[0])
