"""Layers of PyTorch Geometric over one graph, which is a buffer: 30 nodes, 100 edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from stepwell.model_zoo.catalogue.vision import imported

Net = tuple[nn.Module, tuple[Tensor, ...]]
NODES, EDGES, FEATURES = 30, 100, 32


class OnGraph(nn.Module):
    """Two layers over the same edges."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.register_buffer("edges", torch.randint(0, NODES, (2, EDGES)))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, self.edges).relu()
        return x


def _net(make: Callable[[Any], nn.Module]) -> Callable[[], Net]:
    def net() -> Net:
        torch.manual_seed(0)
        layers = imported("torch_geometric.nn")
        return OnGraph(make(layers), make(layers)).eval(), (torch.randn(NODES, FEATURES),)

    return net


graph_gcn = _net(lambda g: g.GCNConv(FEATURES, FEATURES))
graph_sage = _net(lambda g: g.SAGEConv(FEATURES, FEATURES))
graph_gin = _net(lambda g: g.GINConv(nn.Linear(FEATURES, FEATURES)))
graph_gat = _net(lambda g: g.GATConv(FEATURES, FEATURES // 4, heads=4))
graph_transformer = _net(lambda g: g.TransformerConv(FEATURES, FEATURES))
graph_chebyshev = _net(lambda g: g.ChebConv(FEATURES, FEATURES, K=3))
graph_edges = _net(lambda g: g.EdgeConv(nn.Linear(2 * FEATURES, FEATURES)))
NETS = (
    "graph_gcn",
    "graph_sage",
    "graph_gin",
    "graph_gat",
    "graph_transformer",
    "graph_chebyshev",
    "graph_edges",
)
