"""Interpret a source with the artifact's numbers, wherever it has them.

Where floats are rounded to integers, a difference in the last bit becomes a whole step, and after
some layers most values differ. So each value of the source that the artifact has, up to one step,
is replaced by the artifact's, and what follows is computed from it: differences do not add up, and
one operator explains each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import torch
from torch import Tensor
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.dtypes import bf16, f16, torch_dtype
from stepwell.ir.types import TensorType, element
from stepwell.ir.weights import WeightStore
from stepwell.validation.artifacts.fingerprints import (
    INFINITE,
    NO_NUMBER,
    Call,
    Fingerprint,
    Observer,
)

LOCAL = 2e-5
"""The difference that the rounding of one operator explains, relative to the largest number."""
STEPS = 1.05
"""The number of steps by which rounding to an integer may differ."""
LEVELS = 255
"""The number of steps between the ends of numbers that are quantized by their own range. Engines
round the ends, too, may quantize each token by its range, and know no least step: these differ by
two steps, or by the least difference of two numbers."""
AXES = 5
"""The most axes whose permutations are tried."""


def local_tolerance(value: SSAValue, held: Fingerprint) -> float:
    """Return the difference of a value that one operator's rounding explains."""
    op = value.owner
    step = 0.0
    if isinstance(op, SchemaOp) and "dequantize" in op.name:
        given = op.arg("scale") if "scale" in op.SCHEMA.by_name else None
        numbers = held.numbers.unique()
        own = 2 * float(numbers[-1] - numbers[0]) / LEVELS
        own = max([own, float(numbers.diff().min())] if len(numbers) > 1 else [0.0])
        step = given if isinstance(given, float) else own
    halved = isinstance(value.type, TensorType) and element(value.type) in (f16, bf16)
    share = 4 * torch.finfo(torch_dtype(element(value.type))).eps if halved else LOCAL
    return max(share * held.scale, STEPS * step)


@dataclass
class _Synchronized(Interpreter):
    """Replaces values by those of the artifact that are equal to them, up to rounding."""

    prints: Mapping[SSAValue, Fingerprint] = field(default_factory=dict[SSAValue, Fingerprint])
    """Those of the source's values before they are replaced, by the observer of this run."""
    others: Mapping[int, Sequence[tuple[Fingerprint, Tensor]]] = field(
        default_factory=dict[int, Sequence[tuple[Fingerprint, Tensor]]]
    )

    equal: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """The count and place of the artifact's values that equal one of the source's."""

    def step(self, op: Operation, environment: dict[SSAValue, Any]) -> None:
        super().step(op, environment)
        for result in op.results:
            held = self.prints.get(result)
            if held is None or not environment[result].is_floating_point():
                continue
            allowed = local_tolerance(result, held)
            for at in self.near(held, allowed):
                number = self.others[held.count][at][1]
                found = arranged(number, environment[result], allowed)
                if found is not None:
                    environment[result] = found
                    break

    def near(self, held: Fingerprint, allowed: float) -> list[int]:
        """Return the places of the artifact's values that are equal to a value, nearest first.

        One that equals a value up to its last bits is not taken for another, rounded one.
        """
        near = sorted(
            (distance, at)
            for at, (other, _) in enumerate(self.others.get(held.count, ()))
            if (distance := held.distance(other)) <= allowed and (held.count, at) not in self.equal
        )
        close = [(held.count, at) for distance, at in near if distance <= LOCAL * held.scale]
        self.equal.update(close)
        return [at for _, at in near]


def synchronized(
    func: FuncOp,
    weights: WeightStore,
    inputs: Sequence[Any],
    state: Mapping[str, Tensor],
    artifact: Call,
    made: Mapping[SSAValue, Any],
) -> Call:
    """Interpret a method of the source with the artifact's numbers.

    Args:
        func, weights, inputs, state: as for `interpret`.
        artifact: the artifact's call.
        made: the artifact's values in it.
    """
    others: dict[int, list[tuple[Fingerprint, Tensor]]] = {}
    for value, held in artifact.prints.items():
        if isinstance(number := made.get(value), Tensor):
            others.setdefault(held.count, []).append((held, number))
    observer = Observer.of(func, inputs)
    interpreter = _Synchronized(weights, dict(state), observer, None, observer.prints, others)
    for held in [*observer.prints.values()]:
        interpreter.near(held, LOCAL * held.scale)
    return Call(func, interpreter.call(func, inputs), observer.prints)


def arranged(one: Tensor, like: Tensor, allowed: float) -> Tensor | None:
    """Return a tensor with its numbers at the places of the same numbers in another one.

    Args:
        one: the tensor, which has the same numbers in any order of axes, in any shape.
        like: the other tensor.
        allowed: the difference up to which numbers are the same.

    Returns:
        A tensor of the shape and dtype of `like`; None if no permutation of axes of either makes
        them equal.
    """
    if one.numel() != like.numel():
        return None
    wide, target = (x.double().nan_to_num(NO_NUMBER, INFINITE, -INFINITE) for x in (one, like))
    flat = target.flatten()
    for order in orders(wide):
        moved = wide.permute(order).flatten()
        if _is_near(moved, flat, allowed):
            return one.permute(order).reshape(like.shape).to(like.dtype)
    for order in orders(target):
        if _is_near(wide.flatten(), target.permute(order).flatten(), allowed):
            back = [order.index(axis) for axis in range(len(order))]
            shape = [target.shape[axis] for axis in order]
            return one.reshape(shape).permute(back).to(like.dtype)
    return None


def orders(x: Tensor) -> list[list[int]]:
    """Return the orders of a tensor's axes, none if there are too many."""
    axes = [axis for axis in range(x.dim()) if x.shape[axis] > 1]
    rest = [axis for axis in range(x.dim()) if axis not in axes]
    return [[*rest, *order] for order in permutations(axes)] if len(axes) <= AXES else []


def _is_near(one: Tensor, other: Tensor, allowed: float) -> bool:
    return bool(((one - other).abs() <= allowed).all())


def local_tolerances(source: Call) -> dict[SSAValue, float]:
    """Return the difference of each value of a synchronized call that rounding explains."""
    return {value: local_tolerance(value, held) for value, held in source.prints.items()}
