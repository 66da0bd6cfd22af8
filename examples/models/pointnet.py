"""PointNet (Qi et al. 2017): classification of a point cloud, with both alignment networks."""

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

from random_weights import random_input, randomize

CLASSES = 10


class Alignment(nn.Module):
    """A matrix ``[batch, size, size]`` from points ``[batch, size, points]``."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.conv1, self.conv2 = nn.Conv1d(size, 16, 1), nn.Conv1d(16, 32, 1)
        self.fc1, self.fc2 = nn.Linear(32, 16), nn.Linear(16, size * size)
        self.bn1, self.bn2, self.bn3 = (nn.BatchNorm1d(n) for n in (16, 32, 16))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = torch.max(x, 2, keepdim=True)[0].view(-1, 32)
        x = self.fc2(F.relu(self.bn3(self.fc1(x))))
        identity = torch.eye(self.size).flatten().view(1, self.size * self.size)
        return (x + identity.repeat(x.shape[0], 1)).view(-1, self.size, self.size)


class PointNet(nn.Module):
    """Points ``[batch, 3, points]`` to log-probabilities of classes."""

    def __init__(self) -> None:
        super().__init__()
        self.align, self.align_features = Alignment(3), Alignment(16)
        self.conv1, self.conv2 = nn.Conv1d(3, 16, 1), nn.Conv1d(16, 32, 1)
        self.bn1, self.bn2 = nn.BatchNorm1d(16), nn.BatchNorm1d(32)
        self.fc1, self.fc2 = nn.Linear(32, 24), nn.Linear(24, CLASSES)
        self.bn3 = nn.BatchNorm1d(24)
        self.dropout = nn.Dropout(0.3)

    def forward(self, points: Tensor) -> Tensor:
        x = torch.bmm(points.transpose(2, 1), self.align(points)).transpose(2, 1)
        x = F.relu(self.bn1(self.conv1(x)))
        x = torch.bmm(x.transpose(2, 1), self.align_features(x)).transpose(2, 1)
        x = self.bn2(self.conv2(x))
        x = torch.max(x, 2, keepdim=True)[0].view(-1, 32)
        x = self.fc2(F.relu(self.bn3(self.dropout(self.fc1(x)))))
        return F.log_softmax(x, dim=1)


def pointnet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Two clouds of 128 points."""
    return randomize(PointNet()), (random_input(2, 3, 128),)


def pointnet_of_any_number() -> tuple[nn.Module, tuple[Tensor, ...], object]:
    """Two clouds of a dynamic number of points."""
    return *pointnet(), ({2: Dim("points", min=2, max=512)},)
