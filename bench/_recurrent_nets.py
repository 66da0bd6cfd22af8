"""Recurrent nets of other shapes than the examples', in singles and in bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from _further_nets import Of
from torch import Tensor, nn

Net = tuple[nn.Module, tuple[Tensor, ...]]


def spectrogram(net: Of, x: Tensor) -> Tensor:
    """Open-Unmix: frames to a mask of themselves."""
    y = torch.tanh(net.norm(net.first(x).transpose(1, 2)).transpose(1, 2))
    return torch.relu(net.last(torch.cat([y, net.rnn(y)[0]], -1))) * x


def open_unmix() -> Net:
    """Two ways of 32, over 40 frames."""
    rnn = nn.LSTM(32, 32, batch_first=True, bidirectional=True)
    layers = {"first": nn.Linear(48, 32), "norm": nn.BatchNorm1d(32), "last": nn.Linear(96, 48)}
    return Of(spectrogram, rnn=rnn, **layers), (torch.randn(1, 40, 48),)


def last_step(net: Of, x: Tensor) -> Tensor:
    """The usual classifier of lines."""
    return net.last(net.rnn(x)[0][:, -1])


def rows(rnn: type[nn.RNNBase], width: int, steps: int, **settings: object) -> Net:
    """A layer of torch's behind 32 features, and a classifier."""
    both = 1 + bool(settings.get("bidirectional"))
    made = rnn(32, width, batch_first=True, **settings)
    net = Of(last_step, rnn=made, last=nn.Linear(both * width, 10))
    return net, (torch.randn(1, steps, 32),)


def images(net: Of, x: Tensor) -> Tensor:
    """A convolutional LSTM over `[batch, steps, channels, height, width]`."""
    h = c = x.new_zeros(x.shape[0], 8, *x.shape[3:])
    for step in x.unbind(1):
        i, f, o, g = net.gates(torch.cat([step, h], 1)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return net.last(h)


def conv_lstm() -> Net:
    """Eight images of 16 × 16."""
    layers = {"gates": nn.Conv2d(12, 32, 3, padding=1), "last": nn.Conv2d(8, 2, 1)}
    return Of(images, **layers), (torch.randn(1, 8, 4, 16, 16),)


def minimal(net: Of, x: Tensor) -> Tensor:
    """A minGRU: gates of the input alone, one step after another."""
    z, held = torch.sigmoid(net.gate(x)), net.held(x)
    h = torch.zeros_like(held[:, 0])
    out = []
    for step, share in zip(held.unbind(1), z.unbind(1), strict=True):
        h = torch.lerp(h, step, share)
        out.append(h)
    return net.last(torch.stack(out, 1))


def min_gru() -> Net:
    """Thirty-two steps of 64."""
    layers = {"gate": nn.Linear(32, 64), "held": nn.Linear(32, 64), "last": nn.Linear(64, 10)}
    return Of(minimal, **layers), (torch.randn(1, 32, 32),)


def cells(net: Of, x: Tensor) -> Tensor:
    """Cells called by hand, each with its norm."""
    h = x.new_zeros(x.shape[0], 64)
    c = h
    for step in x.unbind(1):
        h, c = net.cell(step, (net.norm(h), c))
    return net.last(h)


def lstm_cells() -> Net:
    """Sixteen steps of 64, a layer norm between them."""
    layers = {"cell": nn.LSTMCell(32, 64), "norm": nn.LayerNorm(64), "last": nn.Linear(64, 10)}
    return Of(cells, **layers), (torch.randn(1, 16, 32),)


NETS: dict[str, Callable[[], Net]] = {
    "open_unmix": open_unmix,
    "lstm_of_128_two_layers": partial(rows, nn.LSTM, 128, 20, num_layers=2),
    "lstm_three_layers": partial(rows, nn.LSTM, 48, 16, num_layers=3),
    "gru_two_layers": partial(rows, nn.GRU, 64, 32, num_layers=2),
    "gru_both_ways": partial(rows, nn.GRU, 48, 24, bidirectional=True),
    "rnn_three_layers": partial(rows, nn.RNN, 64, 24, num_layers=3),
    "conv_lstm": conv_lstm,
    "min_gru": min_gru,
    "lstm_cells": lstm_cells,
}


def made(make: Callable[[], Net], dtype: torch.dtype = torch.float32) -> Net:
    """The same weights and inputs each time, in a precision."""
    torch.manual_seed(0)
    net, inputs = make()
    return net.eval().to(dtype), tuple(x.to(dtype) for x in inputs)


BFLOATS = {f"{name}_in_bfloat16": make for name, make in NETS.items()}
globals().update({name: partial(made, make) for name, make in NETS.items()})
globals().update({name: partial(made, make, torch.bfloat16) for name, make in BFLOATS.items()})
