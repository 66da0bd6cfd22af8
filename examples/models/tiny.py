"""The smallest models: a perceptron, and two of MLPerf Tiny (Banbury et al. 2021)."""

from itertools import pairwise

from torch import Tensor, nn

from random_weights import random_input, randomize


def ds_cnn() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Keyword spotting (Zhang et al. 2017): 49 x 10 MFCCs to 12 words, 64 channels."""
    layers: list[nn.Module] = [
        nn.Conv2d(1, 64, (10, 4), 2, (5, 1), bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
    ]
    for _ in range(4):
        layers += [
            nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.Conv2d(64, 64, 1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
        ]
    layers += [nn.AvgPool2d((25, 5)), nn.Flatten(), nn.Linear(64, 12)]
    return randomize(nn.Sequential(*layers)), (random_input(1, 1, 49, 10),)


def mlp_autoencoder() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Anomaly detection: 640 spectrogram values through a bottleneck of 8 and back."""
    widths = (640, 128, 128, 128, 128, 8, 128, 128, 128, 128)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(widths[-1], 640))
    return randomize(model), (random_input(1, 640),)


def mlp() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """64 features, one hidden layer of 128, 10 classes."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    return randomize(model), (random_input(4, 64),)
