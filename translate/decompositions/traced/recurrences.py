"""Recurrent layers, unrolled: one product applies the input weights to the inputs of all steps.

PyTorch's own decomposition for devices without fused layers multiplies each step's inputs alone.
Gates with the same activation are computed together and split afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

aten = torch.ops.aten

State = tuple[Tensor, ...]
Weights = Sequence[Tensor | None]
"""Weights of the inputs, of the state, their biases, and the projection."""
Cell = Callable[[Tensor, State, Weights], State]


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


def recurrence(cell: Cell) -> Callable[..., Any]:
    """Return a function that unrolls layers of a cell over sequences of constant length."""

    def composed(
        x: Tensor,
        begin: Tensor | Sequence[Tensor],
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
        states = [begin] if isinstance(begin, Tensor) else list(begin)
        each = len(params) // (num_layers * ways)
        ends: list[State] = []
        for layer in range(num_layers):
            lines: list[Tensor] = []
            for way in range(ways):
                at = layer * ways + way
                weights = _sorted(params[at * each : (at + 1) * each], has_biases)
                first = tuple(state.select(0, at).unsqueeze(time) for state in states)
                line, last = _line(cell, x, first, weights, time, backwards=bool(way))
                lines.append(line)
                ends.append(last)
            x = lines[0] if ways == 1 else torch.cat(lines, -1)
        found = (torch.stack([v.squeeze(time) for v in of]) for of in zip(*ends, strict=True))
        return x, *found

    return composed


def _line(
    cell: Cell, x: Tensor, state: State, weights: Weights, time: int, backwards: bool
) -> tuple[Tensor, State]:
    given = linear(x, _held(weights[0]), weights[2])
    order = list(range(x.shape[time]))
    found: dict[int, Tensor] = {}
    for step in reversed(order) if backwards else order:
        state = cell(given.narrow(time, step, 1), state, weights)
        found[step] = state[0]
    return torch.cat([found[step] for step in order], time), state


def _sorted(params: Sequence[Tensor], has_biases: bool) -> Weights:
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


RECURRENCES: Mapping[Any, Callable[..., Any]] = {
    aten.lstm.input: recurrence(lstm_cell),
    aten.gru.input: recurrence(gru_cell),
    aten.rnn_tanh.input: recurrence(rnn_cell(torch.tanh)),
    aten.rnn_relu.input: recurrence(rnn_cell(torch.relu)),
    **CELLS,
}
