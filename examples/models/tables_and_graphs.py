"""Tables and graphs: TabNet's steps, FT-Transformer, and layers on an adjacency matrix."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize

FEATURES, WIDTH, NODES, CLASSES = 12, 16, 20, 5


class GatedLayer(nn.Module):
    """A linear layer with twice the channels, a batch norm, and one half as the gate of
    the other.
    """

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.fc, self.bn = nn.Linear(inputs, 2 * WIDTH, bias=False), nn.BatchNorm1d(2 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(self.bn(self.fc(x)), dim=-1)


class TabNet(nn.Module):
    """Steps that each select features (Arik and Pfister 2019), with softmax instead of
    sparsemax.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(FEATURES)
        self.shared, self.first = GatedLayer(FEATURES), GatedLayer(WIDTH)
        self.steps = nn.ModuleList([GatedLayer(WIDTH) for _ in range(3)])
        self.choose = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH // 2, FEATURES, bias=False), nn.BatchNorm1d(FEATURES))
            for _ in range(3)
        )
        self.head = nn.Linear(WIDTH // 2, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.bn(x)
        prior = torch.ones(x.shape)
        loss, total = 0, 0
        given = self.first(self.shared(x))[:, WIDTH // 2 :]
        for choose, step in zip(self.choose, self.steps, strict=True):
            mask = F.softmax(choose(given) * prior, dim=-1)
            loss = loss + torch.mean(torch.sum(mask * torch.log(mask + 1e-15), dim=1))
            prior = torch.mul(1.3 - mask, prior)
            y = self.shared(mask * x)
            y = (y + step(y)) * torch.sqrt(torch.tensor(0.5))
            total = total + F.relu(y[:, : WIDTH // 2])
            given = y[:, WIDTH // 2 :]
        return self.head(total), loss / 3


class FTTransformer(nn.Module):
    """Each number of a row as a token (Gorishniy et al. 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(FEATURES, WIDTH))
        self.bias = nn.Parameter(torch.empty(FEATURES, WIDTH))
        self.cls = nn.Parameter(torch.empty(WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.weight * x[..., None] + self.bias
        tokens = torch.cat([self.cls.expand(x.shape[0], 1, -1), tokens], dim=1)
        return self.head(F.relu(self.norm(self.encoder(tokens)[:, 0])))


class GraphConvolution(nn.Module):
    """Two layers over an adjacency matrix, normalized by degrees (Kipf and Welling 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor, neighbors: Tensor) -> Tensor:
        linked = neighbors + torch.eye(neighbors.shape[0])
        scale = torch.diag(linked.sum(dim=1).pow(-0.5))
        linked = scale @ linked @ scale
        x = F.relu(torch.mm(linked, self.fc1(x)))
        return F.log_softmax(torch.mm(linked, self.fc2(x)), dim=1)


class GraphAttention(nn.Module):
    """Attention weights of neighbors, from both ends of an edge (Veličković et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.W = nn.Linear(FEATURES, WIDTH, bias=False)
        self.left, self.right = nn.Linear(WIDTH, 1, bias=False), nn.Linear(WIDTH, 1, bias=False)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor, neighbors: Tensor) -> Tensor:
        x = self.W(x)
        scores = F.leaky_relu(self.left(x) + self.right(x).T, 0.2)
        scores = torch.where(neighbors > 0, scores, torch.full_like(scores, -9e15))
        return self.out(F.elu(torch.matmul(F.softmax(scores, dim=1), x)))


def neighbors() -> Tensor:
    """A ring of nodes, each linked to the next and to the one after five."""
    ring = torch.eye(NODES).roll(1, 0) + torch.eye(NODES).roll(5, 0)
    return ring + ring.T


def tabnet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Eight rows."""
    return randomize(TabNet()), (random_input(8, FEATURES),)


def ft_transformer() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Eight rows."""
    return randomize(FTTransformer()), (random_input(8, FEATURES),)


def graph_convolution() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Twenty nodes."""
    return randomize(GraphConvolution()), (random_input(NODES, FEATURES), neighbors())


def graph_attention() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Twenty nodes."""
    return randomize(GraphAttention()), (random_input(NODES, FEATURES), neighbors())
