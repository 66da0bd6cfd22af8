"""Express elements of derived weights for the solver, by the recipes that derive the weights.

A recipe that moves data is run on the indices of its sources' elements.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Protocol

from xdsl.ir import Attribute

from stepwell.dialects.quant.types import quantization, storage_element
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp
from stepwell.ir.dtypes import element_type, f64
from stepwell.ir.types import element
from stepwell.ir.weights import WeightStore
from stepwell.validation.certificates.checker.statements import is_constant
from stepwell.validation.rules.numbers import Symbolic, Tokens, Unproven
from stepwell.validation.rules.scalars import Domain, Typed
from stepwell.validation.rules.solver import z3

Place = tuple[int, ...]


class Tensors(Protocol):
    """The protocol of `rules.tensors` as seen by this module, which it imports."""

    domain: Domain
    tokens: Tokens
    weights: WeightStore
    weight_names: set[str]


POSITIVE = "#positive"
"""The key suffix of weights that a rule requires to be positive; their elements are arbitrary
otherwise.
"""
OFFSET = 128
"""The offset of index 0 in a table for int8."""


def element_of_weight(tensors: Tensors, op: WeightOp, index: tuple[Any, ...]) -> Typed:
    """Return an element of a weight of the program, or of a derived weight."""
    held = quantization(op.result.type)
    of = storage_element(held) if held else element(op.result.type)
    found = at_key(tensors, op.key.data, index)
    return Typed(found.term, of)


def at_key(tensors: Tensors, key: str, index: tuple[Any, ...]) -> Typed:
    """Return an element of the weight with a key."""
    made = tensors.weights.recipe_of(key)
    if made is None:
        return given(tensors, key, index)
    name, sources, _ = made
    if name == "cmsis.compose":
        inner = at_key(tensors, sources[1], index)
        place = z3.BV2Int(inner.term, is_signed=True) + OFFSET
        return at_key(tensors, sources[0], (z3.simplify(place),))
    if name in _COMPUTED:
        return _COMPUTED[name](tensors, key, index)
    if not all(map(z3.is_int_value, index)):
        raise Unproven(f"which element {name} moves is not said by a map")
    source, where = _places(tensors, key)[tuple(each.as_long() for each in index)]
    return at_key(tensors, source, tuple(map(z3.IntVal, where)))


def _zero_of_affine(tensors: Tensors, key: str, index: tuple[Any, ...]) -> Typed:
    """Return -b/g, or b/g, in float64, rounded to the type of b; both have the result's shape."""
    _, (shift, scale), options = tensors.weights.recipe_of(key)  # pyright: ignore[reportGeneralTypeIssues]
    domain = tensors.domain
    parts = [at_key(tensors, source, index) for source in (shift, scale)]
    wide = [domain.converted(part, f64).term for part in parts]
    ratio = domain.converted(Typed(domain.apply("divide", wide, f64), f64), parts[0].of)
    if options["negated"]:
        return ratio
    return Typed(domain.apply("negate", [ratio.term], ratio.of), ratio.of)


def _scale_of_norm(tensors: Tensors, key: str, index: tuple[Any, ...]) -> Typed:
    """Return γ/√(σ² + ε) of a channel, in float64 and rounded at the end."""
    of, scale, _ = _norm(tensors, key, index)
    return tensors.domain.converted(Typed(scale, f64), of)


def _shift_of_norm(tensors: Tensors, key: str, index: tuple[Any, ...]) -> Typed:
    """Return β − μ·s + c·s of a channel, in float64 and rounded at the end."""
    of, scale, parts = _norm(tensors, key, index)
    domain = tensors.domain
    zero = domain.constant(0.0, f64)
    shift = domain.apply("subtract", [parts.get("layer_bias", zero), parts["running_mean"]], f64)
    shift = domain.apply("multiply", [shift, scale], f64)
    shift = domain.apply("add", [shift, parts.get("bias", zero)], f64)
    return domain.converted(Typed(shift, f64), of)


def _norm(
    tensors: Tensors, key: str, index: tuple[Any, ...]
) -> tuple[Attribute, Any, dict[str, Any]]:
    """Return the element type of a batch norm's derived weight, with the scale and statistics of
    one channel.
    """
    _, sources, options = tensors.weights.recipe_of(key) or ("", (), {})
    domain, at = tensors.domain, index[list(options["shape"]).index(-1)]
    typed = [at_key(tensors, source, (at,)) for source in sources]
    wide = [domain.converted(each, f64).term for each in typed]
    parts = dict(zip(options["given"], wide, strict=True))
    lifted = tensors.tokens.lifted(options["epsilon"])
    epsilon = domain.constant(lifted.node if isinstance(lifted, Symbolic) else lifted, f64)
    scale = domain.apply("rsqrt", [domain.apply("add", [parts["running_var"], epsilon], f64)], f64)
    if "weight" in parts:
        scale = domain.apply("multiply", [scale, parts["weight"]], f64)
    return typed[0].of, scale, parts


_COMPUTED: dict[str, Callable[[Tensors, str, tuple[Any, ...]], Typed]] = {
    "zero-of-affine": _zero_of_affine,
    "batch-norm-scale": _scale_of_norm,
    "batch-norm-shift": _shift_of_norm,
}
"""Recipes of elementwise computations."""


def given(tensors: Tensors, key: str, index: tuple[Any, ...]) -> Typed:
    """Return the solver's term for an element of a weight whose elements are arbitrary."""
    of = element_type(tensors.weights.get(key).dtype)
    is_positive = key.endswith(POSITIVE)
    if (
        not is_positive
        and is_constant(tensors.weights, key)
        and (number := _only(tensors.weights.get(key))) is not None
    ):
        return Typed(tensors.domain.constant(number, of), of)
    name = f"w:{key}"
    tensors.weight_names.add(name)
    sorts = [z3.IntSort() for _ in index]
    made = tensors.domain.function(name, *sorts, tensors.domain.sort(of))
    found = made(*index) if index else made()
    if is_positive:
        zero = tensors.domain.constant(0.0, of)
        tensors.domain.facts.append(tensors.domain.apply("less", [zero, found], of))
    return Typed(found, of)


def _only(held: Any) -> Any:
    """Return the number that every element of a tensor equals; None if they differ."""
    first = held.reshape(-1)[:1]
    return first.item() if first.numel() and bool((held == first).all()) else None


def _places(tensors: Tensors, key: str) -> dict[Place, tuple[str, Place]]:
    """Return, for each index of a recipe's result, the source tensor and the index in it."""
    name, sources, _ = tensors.weights.recipe_of(key) or ("", (), {})
    numbers, where = numbered([tensors.weights.get(source).shape for source in sources])
    runs: list[Any] = []
    for offset in (1, 1001):
        try:
            made = tensors.weights.evaluated_on(key, [held + offset for held in numbers])
        except (RuntimeError, ValueError, TypeError) as error:
            raise Unproven(f"the recipe {name} does not move") from error
        runs.append(made - offset)
    first, second = runs
    if first.dtype != torch.int64 or not torch.equal(first, second):
        raise Unproven(f"the recipe {name} computes")
    moved = zip(product(*map(range, first.shape)), first.reshape(-1).tolist(), strict=True)
    keys: list[str] = list(sources)
    return {place: (keys[where[at][0]], where[at][1]) for place, at in moved}


def numbered(shapes: Sequence[Sequence[int]]) -> tuple[list[Any], list[tuple[int, Place]]]:
    """Return tensors of consecutive numbers, and a map from each number to its tensor and index."""
    tensors: list[Any] = []
    where: list[tuple[int, Place]] = []
    for number, shape in enumerate(shapes):
        begin = len(where)
        where += [(number, place) for place in product(*map(range, shape))]
        tensors.append(torch.arange(begin, len(where)).reshape([*shape]))
    return tensors, where
