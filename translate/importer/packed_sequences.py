"""Export of recurrent layers over packed sequences, as loops over the padded batch.

PyTorch packs a batch by values: how many sequences reach each step decides sizes, which a trace
cannot express. While a model is exported, packing keeps the padded batch, and a layer is a `scan`
whose states change only while a sequence lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad
from torch.nn.utils.rnn import PackedSequence

from stepwell.ir.compat.torch.torch_private import packing_by, replaced, scan
from stepwell.ir.diagnostics import StepwellError
from stepwell.translate.decompositions.traced.recurrences import CELL_OF, sorted_weights

aten = torch.ops.aten
_CELLS = {
    "LSTM": CELL_OF[aten.lstm.input],
    "GRU": CELL_OF[aten.gru.input],
    "RNN_TANH": CELL_OF[aten.rnn_tanh.input],
    "RNN_RELU": CELL_OF[aten.rnn_relu.input],
}


@contextmanager
def padded_instead_of_packed() -> Generator[None]:
    """Let packing keep the padded batch, and recurrent layers read it once one is packed."""
    with ExitStack() as stack:

        def pack(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
            for kind in (nn.LSTM, nn.GRU, nn.RNN):
                if kind not in found:
                    found.add(kind)
                    stack.enter_context(replaced(kind, "forward", _method(kind.forward)))
            return _pack(x, lengths, batch_first)

        found = set[type[nn.RNNBase]]()
        stack.enter_context(packing_by(pack, _unpack))
        yield


def _method(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return a layer's `forward` that reads packed sequences as well."""

    def forward(self: Any, input: Any, hx: Any = None) -> Any:
        packed = isinstance(input, PackedSequence)
        return _forward(self, input, hx) if packed else own(self, input, hx)

    return forward


def _pack(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """Return the padded batch, time first, and the lengths as one row."""
    return x.transpose(0, 1) if batch_first else x, lengths[None]


def _unpack(
    x: Tensor, lengths: Tensor, batch_first: bool, value: float, total: Any
) -> tuple[Tensor, Tensor]:
    """Return the padded batch with a value behind each sequence, and the lengths.

    Raises:
        StepwellError: the caller's batch shall have the rows of the longest sequence. `total` is
            then the number of rows of the lengths, of which there are several otherwise.
    """
    rows: Any = x.shape[0]
    if type(total) is int and total == 1 and not (type(rows) is int and rows == 1):
        raise StepwellError(
            "pad_packed_sequence gives as many rows as the longest sequence has, which a program "
            "cannot: pass total_length=x.shape[1], the padded batch's"
        )
    x = torch.where(_lasts(x, lengths), x, value)
    if type(rows) is int and type(total) is int and total > rows:
        x = pad(x, (0, 0, 0, 0, 0, total - rows), value=value)
    return (x.transpose(0, 1) if batch_first else x), lengths.squeeze(0)


def _lasts(x: Tensor, lengths: Tensor) -> Tensor:
    """Return whether each sequence reaches each step."""
    return (torch.arange(x.shape[0])[:, None] < lengths).unsqueeze(2)


def _forward(layer: Any, x: PackedSequence, begin: Any) -> Any:
    """Compute a recurrent layer over the padded batch of packed sequences."""
    rows, lengths, order, back = x
    lasts, ways = _lasts(rows, lengths), 1 + layer.bidirectional
    if begin is None:
        sizes = [layer.proj_size or layer.hidden_size, layer.hidden_size][: 1 + _is_lstm(layer)]
        shape = layer.num_layers * ways, rows.shape[1]
        states = [torch.zeros(*shape, size, dtype=rows.dtype) for size in sizes]
    else:
        states = layer.permute_hidden(begin, order)
        states = list(states) if _is_lstm(layer) else [states]
    ends: list[Sequence[Tensor]] = []
    for at in range(layer.num_layers):
        lines: list[Tensor] = []
        for way in range(ways):
            index = at * ways + way
            first = tuple(state[index].clone() for state in states)
            weights = sorted_weights(layer.all_weights[index], layer.bias)
            last, line = _line(_CELLS[layer.mode], rows, lasts, first, weights, bool(way))
            ends.append(last)
            lines.append(line)
        rows = torch.cat(lines, 2)
    found = tuple(torch.stack(group) for group in zip(*ends, strict=True))
    last = layer.permute_hidden(found if _is_lstm(layer) else found[0], back)
    return PackedSequence(rows, lengths, order, back), last


def _is_lstm(layer: nn.RNNBase) -> bool:
    return layer.mode == "LSTM"


def _line(
    cell: Any, x: Tensor, lasts: Tensor, begin: Any, weights: Sequence[Any], backwards: bool
) -> tuple[Sequence[Tensor], Tensor]:
    """Compute one layer in one direction: its states behind each sequence, and its rows."""
    given = linear(x.flip(0) if backwards else x, weights[0], weights[2])

    def step(state: Any, row: Any) -> Any:
        now, goes_on = row
        new = cell(now, state, weights)
        kept = tuple(torch.where(goes_on, one, old) for one, old in zip(new, state, strict=True))
        return kept, torch.where(goes_on, new[0], 0.0)

    last, rows = scan(step, begin, (given, lasts.flip(0) if backwards else lasts))
    return last, rows.flip(0) if backwards else rows
