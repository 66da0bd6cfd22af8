"""Recurrent layers of dynamic length, and long ones, are loops that hold their weights once."""

from typing import Any

import pytest
import torch
from eager import assert_as_eager
from torch import Tensor, nn
from torch.export import Dim

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.dialects.control import MapRowsOp, ScanOp
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


@pytest.mark.parametrize("steps", [None, 300])
def test_a_long_layer_holds_one_copy_of_its_weights_and_few_products(steps: int | None) -> None:
    """Its loop asks for the products of some rows at a time; the last rows may be fewer."""
    model, inputs = nn.GRU(8, 64, bidirectional=True).eval(), (torch.randn(300, 5, 8),)
    shapes = None if steps else ({0: Dim.AUTO(min=2, max=300)},)  # pyright: ignore
    lowered = stepwell.lower(export(model, inputs, dynamic_shapes=shapes), "xnnpack")
    rows = [op for op in lowered.program.module.walk() if isinstance(op, MapRowsOp)]
    assert len(rows) == 2
    running = PteSession.load(lowered.to_pte())
    for length in [steps] if steps else [2, 63, 64, 65, 128, 299, 300]:
        assert_as_eager(running, model, torch.randn(length, 5, 8), rtol=1e-5, atol=1e-5)


def test_short_layers_of_constant_length_stay_one_delegate() -> None:
    lowered = stepwell.lower(export(nn.LSTM(6, 8).eval(), (torch.randn(9, 1, 6),)), "xnnpack")
    assert (lowered.report.delegates, lowered.report.outside.total()) == (1, 0)


def test_the_report_says_when_copies_of_weights_are_packed() -> None:
    """Seven steps of 512 KB are unrolled; nine would pack more than 4 MiB, and are a loop."""
    reports = {
        steps: stepwell.lower(
            export(nn.LSTM(8, 181).eval(), (torch.randn(steps, 1, 8),)), "xnnpack"
        ).report
        for steps in (7, 9)
    }
    packed, distinct = reports[7].packed
    assert packed > 5 * distinct and "MB of packed weights" in str(reports[7])
    assert reports[9].packed[0] == reports[9].packed[1] and "memory " not in str(reports[9])
    lowered = stepwell.lower(export(nn.Linear(4, 4), (torch.randn(1, 4),)), "xnnpack")
    with pytest.raises(stepwell.StepwellError, match="packed is 80, above its limit of 79"):
        stepwell.budget(lowered, packed=79)


def test_packed_weights_of_four_bits_take_half_a_byte() -> None:
    layer, x = nn.Sequential(nn.Linear(64, 32)).eval(), torch.randn(2, 64)
    quantized = stepwell.quantize(layer, "8da4w", [(x,)])
    report = stepwell.lower(export(quantized, (x,)), "xnnpack").report
    assert report.packed == (64 * 32 // 2 + 4 * 32,) * 2


def test_sequences_of_any_length_need_no_patch_of_the_model() -> None:
    model, x = Recurrent(nn.LSTM).eval(), torch.randn(1, 7, 6)
    model(x)
    found = stepwell.dynamic_shapes(model, (x,), dynamic="sequence")
    running = PteSession.load(stepwell.lower(found.program, "xnnpack").to_pte())
    for length in (2, 9, 14):
        assert_as_eager(running, model, torch.randn(1, length, 6), rtol=1e-5, atol=1e-6)


class Packed(nn.Module):
    """A layer over sequences of their own lengths."""

    def __init__(self, kind: type[nn.RNNBase], **settings: Any) -> None:
        super().__init__()
        self.rnn = kind(6, 8, **settings)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        y, last = self.rnn(packed)
        return nn.utils.rnn.pad_packed_sequence(y, total_length=x.shape[0], padding_value=0.5), last


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(nn.LSTM, "projection", marks=pytest.mark.slow),
        (nn.LSTM, "one layer"),
        pytest.param(nn.GRU, "time first", marks=pytest.mark.slow),
        (nn.RNN, "relu"),
    ],
)
def test_packed_sequences_end_at_their_own_lengths(kind: type[nn.RNNBase], name: str) -> None:
    """What follows a sequence in the padded batch, even a NaN, is in no result."""
    model, inputs = Packed(kind, **LAYERS[name]).eval(), (torch.randn(9, 3, 6), torch.arange(3) + 7)
    shapes = ({0: Dim.AUTO(min=3, max=32)}, None)  # pyright: ignore
    lowered = stepwell.lower(export(model, inputs, dynamic_shapes=shapes), "xnnpack")
    running = PteSession.load(lowered.to_pte())
    for length in (3, 5, 8, 13, 21, 31, 32):
        x = torch.randn(length, 3, 6)
        x[length // 2 :, 1] = torch.nan
        for lengths in ([length, length // 2, 1], [1, 1, length]):
            assert_as_eager(running, model, x, torch.tensor(lengths), rtol=1e-5, atol=1e-6)


class Unpacked(Packed):
    """As many rows as the longest sequence has."""

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0])


@pytest.mark.slow
def test_packed_results_of_unknown_length_are_refused_with_what_helps() -> None:
    inputs = torch.randn(5, 3, 6), torch.tensor([4, 2, 3])
    with pytest.raises(stepwell.StepwellError, match="pass total_length=") as raised:
        stepwell.dynamic_shapes(Unpacked(nn.GRU).eval(), inputs, dynamic="batch")
    assert "test_recurrences.py" in str(raised.value)


FLIP, CALL = "aten.flip.default", "xnnpack.delegate"
