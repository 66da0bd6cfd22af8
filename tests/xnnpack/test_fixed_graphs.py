"""Layers over a graph that is a buffer: sizes that it decides, rows picked and added up at it."""

from collections.abc import Callable

import pytest
import torch
from eager import Function, assert_as_eager, assert_whole, lower
from torch import Tensor, nn

NODES, EDGES, WIDTH = 9, 21, 6


GENERATOR = torch.Generator().manual_seed(3)
EDGES_OF = torch.randint(0, NODES - 1, (2, EDGES), generator=GENERATOR)  # One has no edge.


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


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_over_a_fixed_graph_is_one_delegate(name: str) -> None:
    model = Function(lambda x: LAYERS[name](x, EDGES_OF))
    lowered = lower(model, torch.randn(NODES, WIDTH), numerics="finite")
    assert_whole(lowered)
    assert_as_eager(lowered, model, torch.randn(NODES, WIDTH), rtol=1e-5, atol=1e-5)


def test_an_infinity_stays_where_it_is_added_by_default() -> None:
    model, x = Function(lambda x: added(x[EDGES_OF[0]], EDGES_OF[1])), torch.randn(NODES, WIDTH)
    lowered = lower(model, x)
    assert lowered.report.outside["aten.scatter_add.default"] == 1
    x[0, 0] = torch.inf
    assert_as_eager(lowered, model, x)


PLACES = torch.randint(0, NODES, (EDGES, WIDTH), generator=GENERATOR)
MANY = (torch.arange(600) * 7 % 300)[:, None].expand(-1, 2)


@pytest.mark.parametrize(
    ("places", "rows", "said"),
    [(PLACES, NODES, "the indices differ within a row"), (MANY, 300, "")],
    ids=["places that differ along a row", "many places"],
)
def test_other_places_are_left_to_the_kernel(places: Tensor, rows: int, said: str) -> None:
    model = Function(lambda x: torch.zeros(rows, x.shape[1]).scatter_add(0, places, x.exp()))
    x = torch.randn(places.shape)
    lowered = lower(model, x, numerics="finite")
    assert lowered.report.outside["aten.scatter_add.default"] == 1
    assert any(said in str(refusal) for refusal in lowered.report.refusals)
    assert_as_eager(lowered, model, x)


def test_a_size_that_the_caller_decides_stays_one() -> None:
    model = Function(lambda x, keep: x[keep] * 2)
    x, keep = torch.randn(4, 3), torch.tensor([True, False, True, True])
    lowered = lower(model, x, keep)
    for chosen in (keep, ~keep, torch.zeros(4, dtype=torch.bool)):
        assert_as_eager(lowered, model, x, chosen)


@pytest.mark.parametrize("target", ["tosa-1.0+fp+int", "xnnpack"])
def test_a_number_that_a_buffer_holds_is_a_size(target: str) -> None:
    count = nn.Buffer(torch.tensor([3, 1]))
    model = Function(lambda x: x[: count.max().item()] + 1)
    model.register_buffer("count", count)
    x = torch.randn(5, 2)
    assert_as_eager(lower(model, x, target=target), model, x)
