"""Unrolled recurrent layers: one product applies the input weights to the inputs of all steps.

PyTorch's own decomposition, for devices without fused layers, multiplies each step's inputs
separately. Gates with the same activation are computed together and split afterwards. For int8 each
gate is computed alone, with a range of its own, and an initial state of zeros is omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from stepwell.translate.decompositions.traced.resizes import is_static

aten = torch.ops.aten

State = tuple[Tensor, ...]
Begin = tuple[Tensor | None, ...]
"""A state before the first step; None for zeros."""
Weights = Sequence[Tensor | None]
"""Weights of the inputs, of the state, their biases, and the projection."""
Cell = Callable[[Tensor, Any, Weights], State]


def lstm_cell(given: Tensor, state: State, weights: Weights) -> State:
    """Compute an LSTM step: `[…, 4 H]` input, forget, cell and output gates, and both states."""
    (hidden, cell), (_, recurrent, _, bias, projection) = state, weights
    gates = given + linear(hidden, _held(recurrent), bias)
    taken, kept, _, shown = torch.sigmoid(gates).chunk(4, -1)
    cell = kept * cell + taken * torch.tanh(gates.chunk(4, -1)[2])
    hidden = shown * torch.tanh(cell)
    return (hidden if projection is None else linear(hidden, projection)), cell


def gru_cell(given: Tensor, state: State, weights: Weights) -> State:
    """Compute a GRU step: `[…, 3 H]` reset, update and new gates."""
    (hidden,), (_, recurrent, _, bias, _) = state, weights
    said, size = linear(hidden, _held(recurrent), bias), hidden.shape[-1]
    reset, update = torch.sigmoid(given[..., : 2 * size] + said[..., : 2 * size]).chunk(2, -1)
    new = torch.tanh(given[..., 2 * size :] + reset * said[..., 2 * size :])
    return ((hidden - new) * update + new,)


def rnn_cell(function: Callable[[Tensor], Tensor]) -> Cell:
    """Return a cell that applies an activation to the sum of input and state products."""

    def step(given: Tensor, state: State, weights: Weights) -> State:
        return (function(given + linear(state[0], _held(weights[1]), weights[3])),)

    return step


def lstm_cell_of_bytes(given: Tensor, state: Begin, weights: Weights) -> State:
    """Compute an LSTM step, gate by gate."""
    hidden, cell = state
    gates = _total(given, hidden, weights)
    taken, kept, fresh, shown = (
        torch.tanh(_gate(gates, at, 4)) if at == 2 else torch.sigmoid(_gate(gates, at, 4))
        for at in range(4)
    )
    new = taken * fresh
    new = new if cell is None else kept * cell + new
    return shown * torch.tanh(new), new


def gru_cell_of_bytes(given: Tensor, state: Begin, weights: Weights) -> State:
    """Compute a GRU step, gate by gate."""
    (hidden,), (_, recurrent, _, said, _) = state, weights
    if hidden is not None:
        said = linear(hidden, _held(recurrent), said)
    reset, update = (
        torch.sigmoid(part if said is None else part + _gate(said, at, 3))
        for at, part in enumerate(_gate(given, at, 3) for at in range(2))
    )
    fresh = _gate(given, 2, 3)
    fresh = torch.tanh(fresh if said is None else fresh + reset * _gate(said, 2, 3))
    new = (1 - update) * fresh
    return (new if hidden is None else new + update * hidden,)


def rnn_cell_of_bytes(function: Callable[[Tensor], Tensor]) -> Cell:
    """Return a cell that applies an activation to the sum of input and state products."""
    return lambda given, state, weights: (function(_total(given, state[0], weights)),)


def _gate(gates: Tensor, at: int, count: int) -> Tensor:
    """Return one of `count` gates."""
    size = gates.shape[-1] // count
    return aten.slice.Tensor(gates, -1, at * size, (at + 1) * size)


def _total(given: Tensor, hidden: Tensor | None, weights: Weights) -> Tensor:
    """Return the sum of input and state products."""
    _, recurrent, _, bias, _ = weights
    if hidden is not None:
        return given + linear(hidden, _held(recurrent), bias)
    return given if bias is None else given + bias


def recurrence(cell: Cell, of_bytes: bool = False) -> Callable[..., Any]:
    """Return a function that unrolls layers of a cell over sequences of constant length.

    A step keeps the axis of time, except in int8, where views of it would be ops of their own.
    """

    def composed(
        x: Tensor,
        begin: Tensor | Sequence[Tensor | None] | None,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        time, ways = int(batch_first), 1 + bidirectional
        if (train and dropout) or type(x.shape[time]) is not int or x.shape[time] == 0:
            return NotImplemented
        states = [begin] if begin is None or isinstance(begin, Tensor) else list(begin)
        each = len(params) // (num_layers * ways)
        if of_bytes and (train or not is_static(x.shape) or each != 2 + 2 * has_biases):
            return NotImplemented
        ends: list[State] = []
        for layer in range(num_layers):
            lines: list[Tensor] = []
            for way in range(ways):
                at = layer * ways + way
                weights = sorted_weights(params[at * each : (at + 1) * each], has_biases)
                first = tuple(None if of is None else of.select(0, at) for of in states)
                if not of_bytes:
                    first = tuple(_held(state).unsqueeze(time) for state in first)
                line, last = _line(cell, x, first, weights, time, bool(way), of_bytes)
                lines.append(line)
                ends.append(last)
            x = lines[0] if ways == 1 else torch.cat(lines, x.dim() - 1)
        found = zip(*ends, strict=True)
        if of_bytes:
            return x, *(_stacked(values, 0) for values in found)
        return x, *(torch.stack([value.squeeze(time) for value in values]) for values in found)

    return composed


def _stacked(values: Sequence[Tensor], axis: int) -> Tensor:
    """Stack values on a new axis: views, and one concatenation, which has a kernel of its own."""
    rows = [value.unsqueeze(axis) for value in values]
    return rows[0] if len(rows) == 1 else torch.cat(rows, axis)


def _line(
    cell: Cell, x: Tensor, state: Any, weights: Weights, time: int, backwards: bool, of_bytes: bool
) -> tuple[Tensor, State]:
    given = linear(x, _held(weights[0]), weights[2])
    order = list(range(x.shape[time]))
    found: dict[int, Tensor] = {}
    for step in reversed(order) if backwards else order:
        here = given.select(time, step) if of_bytes else given.narrow(time, step, 1)
        state = cell(here, state, weights)
        found[step] = state[0]
    steps = [found[step] for step in order]
    return _stacked(steps, time) if of_bytes else torch.cat(steps, time), state


def sorted_weights(params: Sequence[Any], has_biases: bool) -> tuple[Any, ...]:
    """Return the weights of one layer and direction in the order of `Weights`."""
    biases = params[2:4] if has_biases else (None, None)
    projection = params[2 + 2 * has_biases :]
    return (*params[:2], *biases, projection[0] if projection else None)


def _held(weight: Tensor | None) -> Tensor:
    assert weight is not None
    return weight


def one_step(cell: Cell) -> Callable[..., Any]:
    """Return a function for a single step of a cell, as in `nn.LSTMCell`."""

    def composed(
        x: Tensor,
        begin: Tensor | Sequence[Tensor],
        of_inputs: Tensor,
        of_state: Tensor,
        inputs_bias: Tensor | None = None,
        state_bias: Tensor | None = None,
    ) -> Any:
        weights = (of_inputs, of_state, inputs_bias, state_bias, None)
        state = (begin,) if isinstance(begin, Tensor) else tuple(begin)
        found = cell(linear(x, of_inputs, inputs_bias), state, weights)
        return found[0] if isinstance(begin, Tensor) else found

    return composed


CELLS: Mapping[Any, Callable[..., Any]] = {
    aten.lstm_cell.default: one_step(lstm_cell),
    aten.gru_cell.default: one_step(gru_cell),
    aten.rnn_tanh_cell.default: one_step(rnn_cell(torch.tanh)),
    aten.rnn_relu_cell.default: one_step(rnn_cell(torch.relu)),
}
"""Single-step operators; the input products of several steps may be merged into one product."""


def cell_function(overload: Any, is_root: bool = False) -> Callable[..., Any] | None:
    """Return the decomposition of a single-step operator, or None for other operators."""
    return CELLS.get(overload)


CELL_OF: Mapping[Any, Cell] = {
    aten.lstm.input: lstm_cell,
    aten.gru.input: gru_cell,
    aten.rnn_tanh.input: rnn_cell(torch.tanh),
    aten.rnn_relu.input: rnn_cell(torch.relu),
}
"""The step of each layer."""
RECURRENCES: Mapping[Any, Callable[..., Any]] = {
    **{layer: recurrence(cell) for layer, cell in CELL_OF.items()},
    **CELLS,
}
QUANTIZABLE_RECURRENCES: Mapping[Any, Callable[..., Any]] = {
    aten.lstm.input: recurrence(lstm_cell_of_bytes, of_bytes=True),
    aten.gru.input: recurrence(gru_cell_of_bytes, of_bytes=True),
    aten.rnn_tanh.input: recurrence(rnn_cell_of_bytes(torch.tanh), of_bytes=True),
    aten.rnn_relu.input: recurrence(rnn_cell_of_bytes(torch.relu), of_bytes=True),
}
"""Those that PT2E annotates: every part has an int8 kernel."""
