"""Layers over a graph that is a buffer: sizes that it decides, rows picked and added up at it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import stepwell

NODES, EDGES, WIDTH = 9, 21, 6


class Graph(nn.Module):
    """A layer and the edges that it is called with."""

    edges: Tensor

    def __init__(self, layer: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        edges = torch.randint(0, NODES - 1, (2, EDGES), generator=generator)  # One has no edge.
        self.register_buffer("edges", edges)
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, self.edges)


def with_loops(edges: Tensor) -> Tensor:
    """The edges without loops, then one loop a node: as many as data say."""
    apart = edges[:, edges[0] != edges[1]]
    return torch.cat([apart, torch.arange(NODES).expand(2, -1)], 1)


def added(rows: Tensor, at: Tensor) -> Tensor:
    return rows.new_zeros(NODES, rows.shape[1]).scatter_add(0, at[:, None].expand_as(rows), rows)


def degrees(x: Tensor, edges: Tensor) -> Tensor:
    """A graph convolution normalized by degrees, which are constants."""
    edges = with_loops(edges)
    ones = torch.ones(edges.shape[1], 1)
    scale = added(ones, edges[1]).pow(-0.5)
    weight = scale[edges[0]] * scale[edges[1]]
    return added(x[edges[0]] * weight, edges[1])


def attention(x: Tensor, edges: Tensor) -> Tensor:
    """A softmax over the edges that lead to each node."""
    edges = with_loops(edges)
    score = x[edges[0]] + x[edges[1]]
    at = edges[1][:, None].expand_as(score)
    most = torch.zeros(NODES, WIDTH).scatter_reduce(0, at, score, "amax", include_self=False)
    share = (score - most[edges[1]]).exp()
    share = share / added(share, edges[1])[edges[1]]
    return added(share * x[edges[0]], edges[1])


def added_by_index(x: Tensor, edges: Tensor) -> Tensor:
    return torch.ones_like(x).index_add(0, edges[1], x[edges[0]], alpha=2)


def reduced(reduce: str, include_self: bool) -> Callable[[Tensor, Tensor], Tensor]:
    def layer(x: Tensor, edges: Tensor) -> Tensor:
        rows = x[edges[0]] * 2
        at = edges[1][:, None].expand_as(rows)
        return (x * 3).scatter_reduce(0, at, rows, reduce, include_self=include_self)

    return layer


def masked(x: Tensor, edges: Tensor) -> Tensor:
    y = added(x[edges[0]], edges[1])
    return y.masked_fill(y <= 0.25, 0.5)


LAYERS = {
    "degrees": degrees,
    "attention": attention,
    "added by index": added_by_index,
    "masked": masked,
    **{
        f"{reduce}, {keeps}": reduced(reduce, keeps)
        for reduce in ("sum", "amax", "amin")
        for keeps in (True, False)
    },
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_a_layer_over_a_fixed_graph_is_one_delegate(
    layer: Callable[[Tensor, Tensor], Tensor],
) -> None:
    model, x = Graph(layer), torch.randn(NODES, WIDTH)
    lowered = stepwell.lower(torch.export.export(model, (x,)), "xnnpack", numerics="finite")
    assert (lowered.report.stages, dict(lowered.report.outside)) == (1, {})
    other = torch.randn(NODES, WIDTH)
    torch.testing.assert_close(lowered.run(other)[0], model(other), rtol=1e-5, atol=1e-5)


def test_an_infinity_stays_where_it_is_added_by_default() -> None:
    model, x = Graph(lambda x, edges: added(x[edges[0]], edges[1])), torch.randn(NODES, WIDTH)
    lowered = stepwell.lower(torch.export.export(model, (x,)), "xnnpack")
    assert lowered.report.outside["aten.scatter_add.default"] == 1
    x[0, 0] = torch.inf
    torch.testing.assert_close(lowered.run(x)[0], model(x))


def test_places_that_differ_along_a_row_are_left_to_the_kernel() -> None:
    places = torch.randint(0, NODES, (EDGES, WIDTH), generator=torch.Generator().manual_seed(1))

    class Scatter(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.zeros(NODES, WIDTH).scatter_add(0, places, x.exp())

    program = torch.export.export(Scatter(), (x := torch.randn(EDGES, WIDTH),))
    lowered = stepwell.lower(program, "xnnpack", numerics="finite")
    assert lowered.report.outside["aten.scatter_add.default"] == 1
    assert any("the indices differ within a row" in str(r) for r in lowered.report.refusals)
    torch.testing.assert_close(lowered.run(x)[0], Scatter()(x))


def test_many_places_are_left_to_the_kernel() -> None:
    class Wide(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            at = (torch.arange(600) * 7 % 300)[:, None].expand(-1, 2)
            return torch.zeros(300, 2).scatter_add(0, at, x.exp())

    program = torch.export.export(Wide(), (torch.randn(600, 2),))
    lowered = stepwell.lower(program, "xnnpack", numerics="finite")
    assert lowered.report.outside["aten.scatter_add.default"] == 1


def test_a_size_that_the_caller_decides_stays_one() -> None:
    class Kept(nn.Module):
        def forward(self, x: Tensor, keep: Tensor) -> Tensor:
            return x[keep] * 2

    x, keep = torch.randn(4, 3), torch.tensor([True, False, True, True])
    lowered = stepwell.lower(torch.export.export(Kept(), (x, keep)), "xnnpack")
    for chosen in (keep, ~keep, torch.zeros(4, dtype=torch.bool)):
        torch.testing.assert_close(lowered.run(x, chosen)[0], x[chosen] * 2)


@pytest.mark.parametrize("target", ["tosa-1.0+fp+int", "xnnpack"])
def test_a_number_that_a_buffer_holds_is_a_size(target: str) -> None:
    class Item(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.tensor([3, 1]))

        def forward(self, x: Tensor) -> Tensor:
            return x[: self.get_buffer("count").max().item()] + 1  # pyright: ignore

    x = torch.randn(5, 2)
    lowered = stepwell.lower(torch.export.export(Item(), (x,)), target)
    torch.testing.assert_close(lowered.run(x)[0], x[:3] + 1)
