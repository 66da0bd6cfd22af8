"""Descriptions of weights, as JSON: types, recipes, digests, and elements of constants."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import Any

from stepwell.ir.calls.arguments import exactly
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import StepwellError, quoted
from stepwell.ir.dtypes import element_type, torch_dtype
from stepwell.ir.types import dims, element, tensor
from stepwell.ir.weights import WeightStore


def described(
    store: WeightStore,
    named: Collection[str],
    shown: Collection[str],
    is_constant: Callable[[str], bool],
) -> dict[str, Any]:
    """Describe weights, and those from which they are derived.

    Args:
        store: the weights.
        named: the keys to describe.
        shown: the keys whose elements are digested, also if they are derived.
        is_constant: whether the elements of a key are included; those of a model's own weights are
            not, because they are read from the program.
    """
    waiting = [key for key in store if key in named]
    weights: dict[str, Any] = {}
    while waiting:
        key = waiting.pop()
        if key in weights:
            continue
        recipe = store.recipe_of(key)
        row: dict[str, Any] = {"digest": store.content_hash(key) if key in shown else ""}
        weights[key] = row
        if recipe is not None:
            row |= {"recipe": recipe[0], "sources": list(recipe[1]), "parameters": recipe[2]}
            waiting += recipe[1]
            continue
        type_ = store.type_of(key)
        row["digest"] = store.content_hash(key)
        row["shape"] = list(dims(type_))
        row["dtype"] = str(torch_dtype(element(type_))).removeprefix("torch.")
        if "#" in key and is_constant(key):
            row["data"] = base64.b64encode(_bytes(store.get(key).contiguous())).decode()
    return weights


def _bytes(value: torch.Tensor) -> bytes:
    return bytes(value.reshape(-1).view(torch.uint8).tolist())


def store_of(rows: Mapping[str, Any], given: Sequence[WeightStore]) -> tuple[WeightStore, int]:
    """Create the weight store of a certificate, with the elements that the given programs have.

    Also return how many of the programs' weights are assumed to be derived by their recipes, from
    weights that are not given. Raise an exception if a weight contradicts what is said of it.
    """
    store, begun, assumed = WeightStore(), set[str](), 0

    def of_recipe(digest: str, recipe: str, sources: list[str], parameters: dict[str, Any]) -> str:
        for source in sources:
            add(source)
        return store.derive(recipe, sources, **parameters)

    def of_constant(key: str, digest: str, shape: list[int], dtype: str, data: str) -> str:
        held, of = bytearray(base64.b64decode(data, validate=True)), getattr(torch, dtype)
        flat = torch.frombuffer(held, dtype=of) if held else torch.empty(0, dtype=of)
        return store.constant(flat.reshape(shape), key.rpartition("#")[0])

    def of_model(key: str, digest: str, shape: list[int], dtype: str) -> str:
        if not all(type(size) is int and size >= 0 for size in shape) or prod(shape) >= 1 << 40:
            raise ValueError("the shape of a weight is invalid")
        type_ = tensor(shape, element_type(getattr(torch, dtype)))
        holders = [each for each in given if key in each and each.is_known(key)]
        store.add(key, holders[0].get(key)) if holders else store.add_unknown(key, type_)
        return key if store.type_of(key) == type_ else ""

    def add(key: str) -> None:
        nonlocal assumed
        if key in store:
            return
        if key not in rows or key in begun:
            raise StepwellError(f"weight {quoted(key)} has no entry, or is derived from itself")
        begun.add(key)
        row = rows[key]
        make = of_recipe if "recipe" in row else of_constant if "data" in row else of_model
        made = exactly(make, dict(row) if make is of_recipe else {"key": key, **row})
        recipe, is_known = store.recipe_of(made or key), store.is_known(made or key)
        others = [each for each in given if key in each and each.is_known(key)]
        others = [each for each in others if recipe is None or each.recipe_of(key) != recipe]
        assumed += bool(others) and not is_known
        hashes = {each.content_hash(key) for each in others}
        if row["digest"] or others:
            hashes |= {row["digest"], *([store.content_hash(made)] if is_known and made else [])}
        types = {each.type_of(key) for each in others} | {store.type_of(made or key)}
        if made != key or len(hashes) > 1 or len(types) > 1:
            raise StepwellError(f"the weight {quoted(key)} differs in type or elements, or name")

    for key in rows:
        add(key)
    return store, assumed
