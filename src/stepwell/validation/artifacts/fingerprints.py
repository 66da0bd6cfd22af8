"""Fingerprints: what a value's numbers are, in any order and shape.

A transpose, a reshape or another memory layout changes none of a value's numbers, only their
places. Two values of different programs that have the same numbers on the same inputs are taken for
the same value, as translation validation does (Pnueli, Siegel and Singerman, 1998).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import StateOp
from stepwell.ir.declared.families import Family, families_of
from stepwell.ir.declared.interpretation import Interpreter, Outcome
from stepwell.ir.weights import WeightStore
from stepwell.validation.artifacts.comparing import real
from stepwell.validation.recording import as_real
from stepwell.validation.rounding import NoisyInterpreter

MOST, EDGE = 2048, 64
"""A longer value has this many order statistics, and its least and greatest numbers."""
INFINITE, NO_NUMBER = 1e40, 1e41
"""What stands for infinity and for NaN among sorted numbers."""
ROUNDING = 2.0**-21
"""The difference of two kernels' floats, relative to the largest number in a tensor: 4 units of the
last place."""


EXACT = frozenset[Family]({"movement", "lookup", "padding", "choice", "factory", "write"})
"""Families whose ops round nothing."""
PADS = tuple(f"aten.{name}" for name in ("pad.", "reflection_pad", "replication_pad", "unfold."))
"""Other ops that only move numbers, by the beginnings of their names."""
UNBOUNDED = 1e30
"""Numbers beyond this stand for infinity."""


def precision(dtype: torch.dtype, single: float) -> float:
    """Return the relative error of a dtype that is `single` in single precision."""
    if dtype == torch.float64:
        return single * torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps
    return max(single, torch.finfo(dtype).eps)


def is_exact(op: Operation) -> bool:
    """Whether an op rounds nothing: it moves or chooses numbers."""
    return bool(families_of(op.name) & EXACT) or op.name.startswith(PADS)


@dataclass(frozen=True)
class Fingerprint:
    """The numbers of a value.

    Attributes:
        count: how many there are.
        numbers: in ascending order, as `f64`; of many numbers a part.
        scale: the largest magnitude of a finite number.
    """

    count: int
    numbers: torch.Tensor
    scale: float

    @staticmethod
    def of(value: torch.Tensor) -> Fingerprint:
        """Return the fingerprint of a tensor of real numbers."""
        flat = value.detach().flatten()
        flat = flat.float() if flat.dtype.itemsize == 1 and flat.is_floating_point() else flat
        flat = flat if flat.dtype == torch.float32 else flat.double()
        plain = flat.nan_to_num(torch.inf, torch.inf, -torch.inf)
        plain = torch.where(plain.abs() < UNBOUNDED, plain, plain * torch.inf)
        if not plain.numel():
            return Fingerprint(0, torch.zeros(1, dtype=torch.float64), 0.0)
        numbers = torch.from_numpy(numpy.sort(plain.numpy())).double()  # Faster than torch's.
        is_finite = numbers.isfinite()
        finite = numbers[is_finite]
        scale = float(finite[[0, -1]].abs().max()) if len(finite) else 0.0
        if len(finite) < len(numbers):
            unknown = int(flat.isnan().sum())
            numbers = numbers.nan_to_num(0.0, INFINITE, -INFINITE)
            numbers[len(numbers) - unknown :] = NO_NUMBER
        if (count := len(numbers)) > MOST + 2 * EDGE:
            places = torch.linspace(EDGE, count - 1 - EDGE, MOST, dtype=torch.float64).long()
            numbers = torch.cat([numbers[:EDGE], numbers[places], numbers[-EDGE:]])
        return Fingerprint(count, numbers, scale)

    @property
    def is_constant(self) -> bool:
        """Whether all numbers are equal: such a value has no mark by which it is known.

        A single number has one unless it is an integer.
        """
        if self.count == 1:
            return bool((self.numbers == self.numbers.round()).all())
        return float(self.numbers[-1] - self.numbers[0]) <= 1e-6 * self.scale

    def distance(self, other: Fingerprint) -> float:
        """Return the largest difference of two numbers at the same place in the order."""
        return float((self.numbers - other.numbers).abs().max())


@dataclass(frozen=True)
class Call:
    """A call of a method that was interpreted: its results, and its values' fingerprints."""

    func: FuncOp
    outcome: Outcome
    prints: Mapping[SSAValue, Fingerprint]

    @property
    def results(self) -> tuple[Any, ...]:
        """The outputs, and the inputs that the method writes, in order."""
        written = self.outcome.mutated_inputs
        return (*self.outcome.outputs, *(written[at] for at in sorted(written)))


def dependent(func: FuncOp) -> set[SSAValue]:
    """Return the values of a method that depend on an input or on state, not on weights alone."""
    found = set[SSAValue](func.body.block.args)
    for op in func.walk():
        read = [value for part in op.walk() for value in part.operands]
        if isinstance(op, StateOp) or not found.isdisjoint(read):
            found.update(op.results)
            found.update(a for region in op.regions for block in region.blocks for a in block.args)
    return found


@dataclass
class Observer:
    """Takes the fingerprint of every value that depends on an input or on state."""

    dependent: set[SSAValue]
    prints: dict[SSAValue, Fingerprint] = field(default_factory=dict[SSAValue, Fingerprint])

    @staticmethod
    def of(func: FuncOp, inputs: Sequence[Any], values: set[SSAValue] | None = None) -> Observer:
        """Return an observer of a call, with the fingerprints of its inputs.

        Args:
            func: the method.
            inputs: the inputs of the call.
            values: the values that are taken; by default those that depend on inputs or state.
        """
        observer = Observer(dependent(func) if values is None else values)
        for argument, value in zip(func.body.block.args, inputs, strict=True):
            observer.take(argument, value)
        return observer

    def __call__(self, op: Operation, results: Sequence[Any]) -> None:
        for value, number in zip(op.results, results, strict=True):
            self.take(value, number)

    def take(self, value: SSAValue, number: Any) -> None:
        if value not in self.dependent:
            return
        number = as_real(value, number)
        if not isinstance(number, torch.Tensor) or not number.numel():
            return
        number = real(number)
        found = Fingerprint.of(number)
        if not found.is_constant:
            self.prints[value] = found


@dataclass
class _Noisy(NoisyInterpreter):
    """Adds the difference of two kernels to each float, and observes the sum."""

    taken: Observer = field(default_factory=lambda: Observer(set()))
    dependent: Set[SSAValue] = frozenset()

    def step(self, op: Operation, environment: dict[SSAValue, Any]) -> None:
        super().step(op, environment)
        self.taken(op, [environment[result] for result in op.results])

    def size_of(self, op: Operation, value: torch.Tensor) -> Any:
        """Return no noise for moved numbers; relative to each number for elementwise ops, unless it
        is small among others below 1; else relative to the largest.

        Sums and products of integers are exact, and constants are the same in both programs.
        A number that stands for infinity, as in a mask, says nothing of the rounding of others.
        """
        families = families_of(op.name)
        if is_exact(op) or self.dependent.isdisjoint(op.results):
            return 0.0
        if "elementwise" in families and bool((value == value.round()).all()):
            return 0.0
        size = precision(value.dtype, self.noise)
        ordinary = value.abs().nan_to_num(0.0, 0.0)
        ordinary = torch.where(ordinary < UNBOUNDED, ordinary, 0.0)
        largest = ordinary.amax()
        if "elementwise" in families:
            return size * torch.maximum(ordinary, largest.clamp(max=1.0))
        return size * largest


def interpret(
    func: FuncOp,
    weights: WeightStore,
    inputs: Sequence[Any],
    state: Mapping[str, torch.Tensor],
    noise: tuple[int, float] | None = None,
    *,
    prints: bool = True,
) -> Call:
    """Interpret a method, and take the fingerprints of its values.

    Args:
        func: the method.
        weights: the weights of its program.
        inputs: the inputs of the call.
        state: the buffers before the call, by key; by default their initial values.
        noise: the seed and the relative size of noise that is added to every float.
        prints: whether to take fingerprints.

    Raises:
        StepwellError: an op cannot be interpreted.
    """
    inner = dependent(func) if prints or noise is not None else set[SSAValue]()
    observer = Observer.of(func, inputs, inner if prints else set())
    if noise is None:
        interpreter: Interpreter = Interpreter(weights, dict(state), observe=observer)
    else:
        random = torch.Generator().manual_seed(noise[0])
        interpreter = _Noisy(weights, dict(state), None, None, random, noise[1], observer, inner)
    return Call(func, interpreter.call(func, inputs), observer.prints)


def recorded_call(source: Call, recorded: Mapping[str, torch.Tensor]) -> Call:
    """Return a call whose values a device recorded, in any order."""
    block = Block(arg_types=[source.func.function_type for _ in recorded])
    observer = Observer(set(block.args))
    for argument, value in zip(block.args, recorded.values(), strict=True):
        observer.take(argument, value)
    return Call(source.func, source.outcome, observer.prints)
