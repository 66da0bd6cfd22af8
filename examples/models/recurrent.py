"""Recurrent nets of ``torch.nn`` with a layer on their last step."""

import torch
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


def _as_initialized(kind: type[nn.Module]) -> nn.Module:
    """Create a model with PyTorch's own random weights, with which no state diverges."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return kind().eval()


class LongLSTM(nn.Module):
    """``[1, steps, 256]`` to ``[1, steps, 256]``."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(256, 256, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


def long_lstm(steps: int = 64) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """An LSTM with a megabyte of weights that every step reads."""
    return _as_initialized(LongLSTM), (random_input(1, steps, 256),)


class CRNN(nn.Module):
    """Text recognition: an image of a line ``[1, 1, 32, 4 * steps]`` to ``[1, steps, 97]``.

    Convolutions reduce the height to 1; two bidirectional LSTMs read along the width (Shi et al.,
    2015, arXiv:1507.05717).
    """

    def __init__(self) -> None:
        super().__init__()
        widths, self.convolutions = (1, 32, 64, 128, 128, 256), nn.Sequential()
        pools = ((2, 2), (2, 2), (2, 1), (2, 1), (2, 1))
        for given, made, pool in zip(widths, widths[1:], pools, strict=False):
            self.convolutions += nn.Sequential(
                nn.Conv2d(given, made, 3, padding=1), nn.ReLU(), nn.MaxPool2d(pool)
            )
        self.rnn = nn.LSTM(256, 256, num_layers=2, bidirectional=True, batch_first=True)
        self.classes = nn.Linear(512, 97)

    def forward(self, x: Tensor) -> Tensor:
        columns = self.convolutions(x).squeeze(2).transpose(1, 2)
        return self.classes(self.rnn(columns)[0])


def crnn(steps: int = 64) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A CRNN on an image of a line of text."""
    return _as_initialized(CRNN), (random_input(1, 1, 32, 4 * steps),)


class StyledNorm(nn.Module):
    """A layer norm whose scale and shift depend on a style."""

    def __init__(self, features: int, style: int) -> None:
        super().__init__()
        self.fc = nn.Linear(style, 2 * features)

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        scale, shift = self.fc(style).unsqueeze(1).chunk(2, -1)
        return (1 + scale) * nn.functional.layer_norm(x, x.shape[-1:]) + shift


class DurationPredictor(nn.Module):
    """How long each sound of a text lasts, as in Kokoro and StyleTTS2 (Li et al., 2023).

    Text features ``[1, steps, 512]`` and a style ``[1, 128]`` to the logits of durations
    ``[1, steps, 50]`` and the features of a second stage ``[1, steps, 512]``: five bidirectional
    LSTMs with norms that depend on the style between them.
    """

    def __init__(self, features: int = 512, style: int = 128, layers: int = 3) -> None:
        super().__init__()

        def lstm() -> nn.LSTM:
            return nn.LSTM(features + style, features // 2, batch_first=True, bidirectional=True)

        self.encoders = nn.ModuleList(lstm() for _ in range(layers))
        self.norms = nn.ModuleList(StyledNorm(features, style) for _ in range(layers))
        self.lstm, self.shared = lstm(), lstm()
        self.durations = nn.Linear(features, 50)

    def forward(self, text: Tensor, style: Tensor) -> tuple[Tensor, Tensor]:
        styles = style.unsqueeze(1).expand(-1, text.shape[1], -1)
        x = torch.cat([text, styles], -1)
        for encoder, norm in zip(self.encoders, self.norms, strict=True):
            x = torch.cat([norm(encoder(x)[0], style), styles], -1)
        return self.durations(self.lstm(x)[0]), self.shared(x)[0]


def duration_predictor(steps: int = 64) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The duration predictor of a speech synthesizer."""
    return _as_initialized(DurationPredictor), (random_input(1, steps, 512), random_input(1, 128))
