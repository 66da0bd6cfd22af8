"""Recurrent layers in int8: the steps are torch's, and every one is the library's operators."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepwell
from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer
from stepwell.translate.pt2e.decompose_for_annotation import decompose

from .test_memory import arena, model

aten = torch.ops.aten


class Both(nn.Module):
    """The steps and the last state of a layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *given: Any) -> Any:
        steps, state = self.layer(*given)
        return steps, *(state if isinstance(state, tuple) else (state,))


class Given(Both):
    """A layer whose first state the caller gives."""

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> Any:
        return super().forward(x, (h, c))


STATE = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
LAYERS: dict[str, tuple[nn.Module, tuple[Tensor, ...]]] = {
    "LSTM": (Both(nn.LSTM(4, 5)), (torch.randn(6, 3, 4),)),
    "GRU": (Both(nn.GRU(4, 5, batch_first=True)), (torch.randn(3, 6, 4),)),
    "tanh": (Both(nn.RNN(4, 5, bias=False)), (torch.randn(6, 3, 4),)),
    "relu": (Both(nn.RNN(4, 5, nonlinearity="relu")), (torch.randn(6, 3, 4),)),
    "both ways, two layers": (
        Both(nn.GRU(4, 5, 2, bidirectional=True, batch_first=True)),
        (torch.randn(3, 6, 4),),
    ),
    "a state of its own": (Given(nn.LSTM(4, 5, 2)), (torch.randn(6, 3, 4), *STATE)),
    "no bias": (Both(nn.LSTM(4, 5, bias=False)), (torch.randn(6, 3, 4),)),
    "no batch": (Both(nn.GRU(4, 5)), (torch.randn(6, 4),)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_steps_of_a_layer_are_torchs(name: str) -> None:
    module, inputs = LAYERS[name]
    graph: Any = torch.export.export(module.eval(), inputs).module(check_guards=False)
    graph = decompose(graph)
    targets = {str(node.target) for node in graph.graph.nodes}
    assert not any(kind in target for target in targets for kind in ("lstm", "gru", "rnn_"))
    with torch.no_grad():
        for found, wanted in zip(graph(*inputs), module(*inputs), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


PARTS = {"crnn_lstm": 10 + 10 * 4 - 1, "crnn_gru": 10 + 10 * 3 + 9 * 3}
"""Ten steps, each selected, and the gates of each: slices of a selection (a GRU's of the state's
product, too). The first state is zeros: it has no product, and the first LSTM forgets nothing.
"""


@pytest.mark.parametrize("name", PARTS)
def test_every_step_is_the_librarys_and_nothing_is_copied(name: str, quantized: Any) -> None:
    module, inputs = model("microcontrollers", name)
    exported = quantized(module, inputs, CortexMQuantizer())
    lowered = stepwell.lower(exported, "cortex-m4", io="int8")
    assert not lowered.report.outside
    ops = [op.name for op in lowered.program.module.walk()]
    assert ops.count("cmsis.part") == PARTS[name]
    assert not {"aten.slice.Tensor", "aten.select.int"} & {*ops}
    assert arena(lowered.to_pte()) <= 8_000
    x = torch.randint(-128, 128, inputs[0].shape, dtype=torch.int8)
    assert torch.equal(lowered.run(x)[0], lowered.program.run(x)[0])
    read = stepwell.read_pte(lowered.to_pte())
    assert torch.equal(read.run(x)[0], lowered.program.run(x)[0])


def test_a_recurrence_stays_a_float_where_that_is_asked_for(quantized: Any) -> None:
    module, inputs = model("microcontrollers", "crnn_gru")
    exported = quantized(module, inputs, CortexMQuantizer(recurrences=False))
    assert "aten.sigmoid.default" in stepwell.lower(exported, "cortex-m4").report.outside
