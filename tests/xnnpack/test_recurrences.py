"""Recurrent layers of dynamic length, and long ones, are loops that hold their weights once."""

from typing import Any

import pytest
import torch
from eager import assert_as_eager
from torch import Tensor, nn
from torch.export import Dim

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.dialects.control import ScanOp
from stepwell.translate.importer.export_call import export

LENGTHS = (2, 3, 5, 8, 13, 31, 32)
LAYERS: dict[str, dict[str, Any]] = {
    "one layer": {},
    "two layers": {"num_layers": 2, "dropout": 0.3},
    "both directions": {"bidirectional": True, "num_layers": 2},
    "no biases": {"bias": False},
    "time first": {"batch_first": False, "bidirectional": True},
    "state": {},
}
CASES = [
    *((kind, name) for kind in (nn.LSTM, nn.GRU, nn.RNN) for name in LAYERS),
    (nn.LSTM, "projection"),
    (nn.RNN, "relu"),
]
LAYERS |= {
    "projection": {"proj_size": 4, "num_layers": 2, "bidirectional": True},
    "relu": {"nonlinearity": "relu"},
}


class Recurrent(nn.Module):
    """A layer, and another on its results; its states are results, too."""

    def __init__(self, kind: type[nn.RNNBase], **settings: Any) -> None:
        super().__init__()
        self.rnn = kind(6, 8, **{"batch_first": True, **settings})
        self.after = nn.LazyLinear(3)

    def forward(self, x: Tensor, *state: Tensor) -> Any:
        given = {0: None, 1: state[0] if state else None, 2: state}[len(state)]
        y, last = self.rnn(x, given)
        return self.after(y), last


def inputs_of(kind: type[nn.RNNBase], name: str, length: int) -> tuple[Tensor, ...]:
    batch = 1 if name == "two layers" else 3
    x = torch.randn(batch, length, 6)
    if name == "time first":
        x = x.transpose(0, 1).contiguous()
    count = {"state": 1 + (kind is nn.LSTM)}.get(name, 0)
    return x, *(torch.randn(1, batch, 8) for _ in range(count))


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_layer_of_any_length_is_a_loop_of_one_delegate(kind: type[nn.RNNBase], name: str) -> None:
    model, inputs = Recurrent(kind, **LAYERS[name]).eval(), inputs_of(kind, name, 20)
    model(*inputs)
    axis = 0 if name == "time first" else 1
    sizes = (({axis: Dim.AUTO(min=2, max=32)}, *[None] * (len(inputs) - 1)),)  # pyright: ignore
    shapes = sizes[0] if len(inputs) == 1 else (sizes[0][0], tuple(sizes[0][1:]))
    lowered = stepwell.lower(export(model, inputs, dynamic_shapes=shapes), "xnnpack")
    assert not [name for name in lowered.report.outside if name not in ("control.scan", FLIP)]
    loops = [op for op in lowered.program.module.walk() if isinstance(op, ScanOp)]
    assert len(loops) == model.rnn.num_layers
    for loop in loops:
        assert [op.name for op in loop.body.block.ops] == [CALL, "control.yield"]
    running = PteSession.load(lowered.to_pte())
    for length in LENGTHS:
        assert_as_eager(running, model, *inputs_of(kind, name, length), rtol=1e-5, atol=1e-6)


FLIP, CALL = "aten.flip.default", "xnnpack.delegate"
