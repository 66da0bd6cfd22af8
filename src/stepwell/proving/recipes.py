"""What recipes make of weights: elements in other places, or tables of tables.

A recipe that moves is run on the numbers of the places of its sources, as a movement is.
"""

from __future__ import annotations

from typing import Any, Protocol

from stepwell.certifying.deciding import is_constant
from stepwell.dialects.quant.types import quantization, storage_element
from stepwell.ir.core import WeightOp
from stepwell.ir.dtypes import element_type
from stepwell.ir.outside.on_demand import torch
from stepwell.ir.types import element
from stepwell.ir.weights import WeightStore
from stepwell.proving.numbers import Unproven
from stepwell.proving.scalars import Domain, Typed
from stepwell.proving.solver import z3


class Tensors(Protocol):
    """What `proving.tensors` knows of the program and the domain."""

    domain: Domain
    weights: WeightStore
    weight_names: set[str]


OFFSET = 128
"""Of the first entry of a table for int8."""


def element_of_weight(tensors: Tensors, op: WeightOp, index: tuple[Any, ...]) -> Typed:
    """An element of a weight of the program, or of one that a recipe makes."""
    held = quantization(op.result.type)
    of = storage_element(held) if held else element(op.result.type)
    found = at_key(tensors, op.key.data, index)
    return Typed(found.term, of)


def at_key(tensors: Tensors, key: str, index: tuple[Any, ...]) -> Typed:
    """An element under a key of the store."""
    made = tensors.weights.recipe_of(key)
    if made is None:
        return given(tensors, key, index)
    name, sources, _ = made
    if name == "cmsis.compose":
        inner = at_key(tensors, sources[1], index)
        place = z3.BV2Int(inner.term, is_signed=True) + OFFSET
        return at_key(tensors, sources[0], (z3.simplify(place),))
    if not all(map(z3.is_int_value, index)):
        raise Unproven(f"which element {name} moves is not said by a map")
    source, where = _places(tensors, key)[tuple(each.as_long() for each in index)]
    return at_key(tensors, source, tuple(map(z3.IntVal, where)))


def given(tensors: Tensors, key: str, index: tuple[Any, ...]) -> Typed:
    """An element of a weight that is any."""
    of = element_type(tensors.weights.get(key).dtype)
    if (
        is_constant(tensors.weights, key)
        and (number := _only(tensors.weights.get(key))) is not None
    ):
        return Typed(tensors.domain.constant(number, of), of)
    name = f"w:{key}"
    tensors.weight_names.add(name)
    sorts = [z3.IntSort() for _ in index]
    made = tensors.domain.function(name, *sorts, tensors.domain.sort(of))
    return Typed(made(*index) if index else made(), of)


def _only(held: Any) -> Any:
    """The number that all elements of a tensor are."""
    first = held.reshape(-1)[:1]
    return first.item() if first.numel() and bool((held == first).all()) else None


def _places(tensors: Tensors, key: str) -> dict[tuple[int, ...], tuple[str, tuple[int, ...]]]:
    """For each place of what a recipe makes, the source and its place."""
    name, sources, _ = tensors.weights.recipe_of(key) or ("", (), {})
    shapes = [tuple(tensors.weights.get(source).shape) for source in sources]
    numbered: list[Any] = []
    where: list[tuple[str, tuple[int, ...]]] = []
    for source, shape in zip(sources, shapes, strict=True):
        count = int(torch.tensor(shape).prod()) if shape else 1
        numbered.append(torch.arange(len(where), len(where) + count).reshape(shape))
        grid = torch.cartesian_prod(*(torch.arange(s) for s in shape)).reshape(count, -1)
        where += [(source, tuple(row)) for row in grid.tolist()]
    runs: list[Any] = []
    for offset in (1, 1001):
        try:
            made = tensors.weights.evaluated_on(key, [held + offset for held in numbered])
        except (RuntimeError, ValueError, TypeError) as error:
            raise Unproven(f"the recipe {name} does not move") from error
        runs.append(made - offset)
    first, second = runs
    if first.dtype != torch.int64 or not torch.equal(first, second):
        raise Unproven(f"the recipe {name} computes")
    grid = torch.cartesian_prod(*(torch.arange(s) for s in first.shape)).reshape(first.numel(), -1)
    return {
        tuple(row): where[at]
        for row, at in zip(grid.tolist(), first.reshape(-1).tolist(), strict=True)
    }
