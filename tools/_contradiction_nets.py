"""Small nets: all that is fused, an operator without a node, linear layers, any batch."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.deep = nn.Conv2d(16, 16, 3, 1, 1, groups=16)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        x = x + torch.relu(self.deep(x))
        return self.head(x.mean((2, 3)))


class Sorts(Net):
    def forward(self, x):
        return torch.sort(super().forward(x))[0]


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def made(model, *sizes):
    torch.manual_seed(0)
    return model().eval(), tuple(torch.randn(size) for size in sizes)


def net():
    return made(Net, (1, 3, 16, 16))


def sorts():
    return made(Sorts, (1, 3, 16, 16))


def rows():
    return made(Rows, (2, 8))


def anyrows():
    return *made(Rows, (2, 8)), {}, {"x": {0: torch.export.Dim("n", min=1, max=64)}}


def data():
    torch.manual_seed(1)
    for _ in range(4):
        yield (torch.randn(8, 3, 16, 16),), torch.randint(10, (8,))
