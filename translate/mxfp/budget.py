"""Assignment of payloads with the fewest bits that keep a model's outputs within an error budget.

Each layer is converted to fp4 separately, and the error of the outputs is measured. The error in
another payload is assumed proportional to the layer's own error (`accuracy`). The squared errors of
layers add up, so an exact knapsack over bits times elements gives payloads for any bound on their
sum. The bound is adjusted until the whole model, run in MX, is just within the budget on every
sample. Then every layer in turn gets fewer bits, or exchanges bits with another layer, while the
model stays within it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from torch import Tensor, nn
from xdsl.ir import Operation

from stepwell.dialects.tosa_mxfp.payloads import payload_named
from stepwell.ir.diagnostics import StepwellError, module_path
from stepwell.ir.knapsack import least_cost
from stepwell.ir.program import Program
from stepwell.ir.types import dims
from stepwell.translate.mxfp.accuracy import LAYERS, measure
from stepwell.translate.mxfp.conversion import (
    MATCHING,
    Float,
    Layers,
    Products,
    Samples,
    as_program,
    check_samples,
    chooses,
    convert,
    convert_module,
    prepared,
)


def within_budget(
    model: Float,
    budget: float,
    samples: Samples,
    layers: Layers,
    kinds: Products,
) -> nn.Module | Program:
    """Convert the model to MX; see `to_mxfp`.

    Raises:
        StepwellError: no samples were passed, or every single layer in MX exceeds the budget.
    """
    check_samples(samples, "an error budget")
    program = prepared(as_program(model, samples), kinds.attention)
    if not isinstance(model, nn.Module):
        return _search(program, budget, samples, layers, kinds)[0]

    def wanted(name: str, _: Any) -> bool:
        return chooses(layers, name, model.get_submodule(name))

    chosen = _search(program, budget, samples, wanted, kinds)[1]
    by_name: dict[str, str] = {}
    for op, payload in zip(products(program), chosen, strict=True):
        name = module_path(op.location) or ""
        if payload is not None:
            by_name[name] = max(payload, by_name.get(name, payload), key=_bits)
    return convert_module(model, lambda name, _: by_name.get(name), kinds)


def products(program: Program) -> list[Operation]:
    """Return the layers of a program, in order, which is the same for its clones."""
    return [op for op in program.method().walk() if type(op) in LAYERS]


FLOAT = 32
"""Bits per element of a layer that is not converted."""
PROBE = "fp4e2m1"
ROUNDS = 6
"""The number of trials that adjust the bound."""
Chosen = list[str | None]
"""The payload of each of `products`; None if it stays float."""


def _search(
    program: Program, budget: float, samples: Samples, layers: Layers, kinds: Products
) -> tuple[Program, Chosen]:
    """Return the converted program, and the payload of each of `products`."""
    ops = products(program)
    expected = [program.run(*sample) for sample in samples]
    measured = measure(program, samples, kinds)
    own = [
        measured.get(op, {}) if chooses(layers, module_path(op.location) or "", op) else {}
        for op in ops
    ]
    if not any(own):
        raise StepwellError("no layer of the model matches", help=MATCHING)

    def converted(chosen: Chosen) -> Program:
        result = program.clone()
        held = dict(zip(products(result), chosen, strict=True))
        if any(chosen):
            convert(result, lambda _, op: held.get(op), kinds)
        return result

    def error(chosen: Chosen) -> float:
        runs = converted(chosen)
        given = [runs.run(*sample) for sample in samples]
        return max(map(relative_error, given, expected))

    sizes = [_numbers(op) for op in ops]
    losses = [_losses(at, errors, error, len(ops)) for at, errors in enumerate(own)]
    chosen = _bounded(losses, sizes, budget, error)
    if not any(chosen):
        raise StepwellError(
            f"any layer in MX changes the outputs by more than the relative error {budget:g}",
            help="mx_accuracy(model, samples) returns the error of each layer in each payload",
        )
    chosen = _improved(chosen, losses, sizes, lambda trial: error(trial) <= budget)
    return converted(chosen), chosen


def _numbers(op: Operation) -> int:
    """Count the elements of a layer's second operand; a dynamic size counts as 1."""
    return prod(size for size in dims(op.operands[1].type) if isinstance(size, int))


def _losses(
    at: int, own: Mapping[str, float], error: Callable[[Chosen], float], count: int
) -> dict[str | None, float]:
    """Return the error of the outputs by payload, with only this layer in MX."""
    if not own:
        return {None: 0.0}
    probe = PROBE if PROBE in own else max(own, key=lambda name: own[name])
    moved = error([probe if i == at else None for i in range(count)])
    share = moved / own[probe] if own[probe] else 0.0
    return {None: 0.0, **{payload: share * local for payload, local in own.items()}}


def _bits(payload: str | None) -> int:
    return FLOAT if payload is None else payload_named(payload).bits


def _bounded(
    losses: Sequence[Mapping[str | None, float]],
    sizes: Sequence[int],
    budget: float,
    error: Callable[[Chosen], float],
) -> Chosen:
    """Return the knapsack's payloads for the largest tried bound that stays within the budget."""
    names = [list(options) for options in losses]
    things = [
        [(float(_bits(name) * size), options[name] ** 2) for name in options]
        for options, size in zip(losses, sizes, strict=True)
    ]

    def payloads(bound: float) -> Chosen:
        picks = least_cost(things, bound**2) or []
        return [options[pick] for options, pick in zip(names, picks, strict=True)]

    best: Chosen = [None] * len(names)
    low, high = 0.0, float("inf")
    bound = budget
    for _ in range(ROUNDS):
        trial = payloads(bound)
        if error(trial) <= budget:
            best, low = trial, bound
            bound = bound * 1.6 if high == float("inf") else (low + high) / 2
        else:
            high = bound
            bound = (low + high) / 2 if low else bound / 2.5
    return best


def _improved(
    chosen: Chosen,
    losses: Sequence[Mapping[str | None, float]],
    sizes: Sequence[int],
    fits: Callable[[Chosen], bool],
) -> Chosen:
    """Reduce the bits of one layer, or exchange them between two, as long as the budget holds."""

    def cost(trial: Chosen) -> int:
        return sum(_bits(name) * size for name, size in zip(trial, sizes, strict=True))

    def others(at: int) -> list[Chosen]:
        """Yield the other payloads of this layer, the best of each number of bits."""
        by_bits: dict[int, str | None] = {}
        for name in sorted(losses[at], key=lambda name: losses[at][name]):
            by_bits.setdefault(_bits(name), name)
        return [[*chosen[:at], name, *chosen[at + 1 :]] for name in by_bits.values()]

    singles = [trial for at in range(len(chosen)) for trial in others(at)]
    changed = [
        [one[i] if one[i] != chosen[i] else other[i] for i in range(len(chosen))]
        for n, one in enumerate(singles)
        for other in singles[n + 1 :]
    ] if len(chosen) <= PAIRED else []  # fmt: skip
    better = [trial for trial in [*singles, *changed] if cost(trial) < cost(chosen)]
    for trial in sorted(better, key=cost):
        moved = sum(losses[i][name] ** 2 for i, name in enumerate(trial))
        now = sum(losses[i][name] ** 2 for i, name in enumerate(chosen))
        if moved <= SLACK * now and fits(trial):
            return _improved(trial, losses, sizes, fits)
    return chosen


PAIRED = 8
"""The most layers for which pairs are tried."""
SLACK = 2.0
"""The factor by which the estimated squared error of a candidate may exceed the budget."""


def relative_error(given: Sequence[Any], expected: Sequence[Any]) -> float:
    """Return the largest ‖given - expected‖ / ‖expected‖ over a model's floating-point outputs."""
    errors = [0.0]
    for a, b in zip(given, expected, strict=True):
        if isinstance(b, Tensor) and b.dtype.is_floating_point:
            norm = float(b.double().norm()) or 1.0
            errors.append(float((a.double() - b.double()).norm()) / norm)
    return max(errors)
