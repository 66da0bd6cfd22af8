"""Recurrent nets of ``torch.nn`` with a layer on their last step."""

from torch import Tensor, nn

from random_weights import random_input, randomize


class LastStep(nn.Module):
    """``[batch, steps, 16]`` to ``[batch, 10]``."""

    def __init__(self, kind: type[nn.RNNBase], **settings: object) -> None:
        super().__init__()
        self.rnn = kind(16, 24, batch_first=True, **settings)
        self.fc = nn.Linear(48 if settings.get("bidirectional") else 24, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.rnn(x)[0][:, -1])


def lstm() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Six steps of an LSTM."""
    return randomize(LastStep(nn.LSTM)), (random_input(1, 6, 16),)


def gru() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Six steps of a GRU."""
    return randomize(LastStep(nn.GRU)), (random_input(1, 6, 16),)


def lstm_both_ways() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Two layers, bidirectional, over eight steps."""
    module = LastStep(nn.LSTM, bidirectional=True, num_layers=2)
    return randomize(module), (random_input(1, 8, 16),)


def lstm_64_steps() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """An LSTM of 64 steps, to measure the cost of unrolling."""
    return randomize(LastStep(nn.LSTM)), (random_input(1, 64, 16),)
