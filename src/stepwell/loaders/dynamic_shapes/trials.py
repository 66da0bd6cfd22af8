"""Compare a program of dynamic sizes with its model at further sizes.

If the model accepts a size and the program does not, a guard of the trace excludes it
(`s % 32 == 0`): the program's sizes have a step. If both run and disagree, the dimension must not
be dynamic: the model behaves differently while it is traced.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram

from stepwell.dialects.symbols import asked_quietly
from stepwell.ir.compat.torch.torch_private import pytree
from stepwell.ir.diagnostics import first_line
from stepwell.loaders.dynamic_shapes.candidates import Inputs, Place
from stepwell.loaders.dynamic_shapes.exporting import SourceLine, line_of

STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 3, 7, 14, 28)
"""Distances of sizes that are tried until one is accepted: halvings, windows and patches."""
CLOSE = 1e-3
"""Greatest difference of two runs of the same kernels, as a share of the largest number."""


@dataclass(frozen=True)
class Open:
    """A dynamic size of a program.

    Attributes:
        symbol: the symbol's name.
        given: the symbol's value in the example.
        places: the input axes that have the size, and their size if the symbol is `n`.
    """

    symbol: str
    given: int
    places: Mapping[Place, Callable[[int], int]]
    least: int
    most: int

    def sizes(self, value: int) -> dict[Place, int]:
        """Return the inputs' sizes for a value of the symbol."""
        return {place: of(value) for place, of in self.places.items()}


@dataclass(frozen=True)
class Fault:
    """The reason why a size is not dynamic, and the model's line that is the cause."""

    fact: str
    line: SourceLine | None = None


class Wrong(Fault):
    """A size at which the program disagrees with the model."""


@dataclass(frozen=True)
class Tried:
    """The result of trying sizes.

    Attributes:
        sizes: the sizes at which the program agreed with the model.
        step: the distance between sizes that model and program accept.
        fault: the fault, if no other size was right or one was wrong.
    """

    sizes: tuple[int, ...]
    step: int = 1
    fault: Fault | None = None


class WrongNumber(Exception):
    """Raised if the dynamic program gives other results than the model."""


class Trial:
    """A model and its exported program, which are run at other sizes and compared."""

    def __init__(self, module: torch.nn.Module, program: ExportedProgram, inputs: Inputs) -> None:
        self.module = module
        self.inputs = inputs
        self.guarded = program.module()
        self.traced = program.module(check_guards=False)
        self.program = program
        self.is_random = not _agree(self._eager(inputs), self._eager(inputs))

    def _eager(self, inputs: Inputs) -> list[Any]:
        with torch.no_grad(), _state_kept(self.module):
            return pytree.tree_leaves(self.module(*inputs.args, **inputs.kwargs))

    def run(self, sizes: Mapping[Place, int]) -> None:
        """Run the model and its program at some sizes, and compare the results.

        Raises:
            NotForModel: the model does not accept the sizes.
            NotForTrace: the trace does not accept the sizes.
            WrongNumber: both accept the sizes, but their results differ.
        """
        inputs = self.inputs.resized(sizes)
        try:
            wanted = self._eager(inputs)
        except Exception as error:
            raise NotForModel from error
        try:
            with torch.no_grad(), _state_kept(self.traced):
                found = self.traced(*inputs.args, **inputs.kwargs)
            if self.is_random or _agree(wanted, pytree.tree_leaves(found)):
                return
        except Exception as error:
            raise NotForTrace from error
        try:
            with torch.no_grad(), _state_kept(self.guarded), asked_quietly():
                self.guarded(*inputs.args, **inputs.kwargs)
        except Exception as error:
            raise NotForTrace from error
        raise WrongNumber


class NotForModel(Exception):
    """Raised if the model itself does not accept the tried sizes."""


class NotForTrace(Exception):
    """Raised if a guard of the traced program excludes the tried sizes."""


def tried(trial: Trial, size: Open) -> Tried:
    """Try other values of one size; the other sizes keep those of the example."""
    right: dict[int, int] = {}
    fault: Fault | None = None
    for step in STEPS:
        near = [v for v in (size.given + step, size.given - step) if size.least <= v <= size.most]
        for value in near:
            found = _at(trial, size, value)
            if isinstance(found, Wrong):
                return Tried((), step, found)
            if found is None:
                right.setdefault(value, step)
            fault = fault or found
        if near and all(value in right for value in near):
            return _further(trial, size, step, near)
    if right:
        return Tried(tuple(sorted(right)), min(right.values()))
    return Tried((), 1, fault or Fault(f"no other lies between {size.least} and {size.most}", None))


def _further(trial: Trial, size: Open, step: int, right: list[int]) -> Tried:
    lowest = size.given - (size.given - 1) // step * step
    for value in {1, lowest, size.given - 2 * step, size.given + 3 * step} - {size.given, *right}:
        if 1 <= value <= size.most:
            found = _at(trial, size, value)
            if isinstance(found, Wrong) and value >= size.least:
                return Tried((), step, found)
            if found is None:
                right.append(value)
    return Tried(tuple(sorted(right)), step)


def narrowed(trial: Trial, size: Open, seen: Tried) -> Open:
    """Find the size, from the example towards an end, up to which model and program agree.

    A trace may be valid for less than its range: `x.shape[-1] // 8` may be specialized to 2.
    """
    if seen.fault is not None:
        return size

    def end(limit: int) -> int:
        step = seen.step if limit > size.given else -seen.step
        taken, beyond = 0, (limit - size.given) // step
        if beyond > 0 and _at(trial, size, size.given + beyond * step) is None:
            return limit
        while beyond - taken > 1:
            middle = (taken + beyond) // 2
            if _at(trial, size, size.given + middle * step) is None:
                taken = middle
            else:
                beyond = middle
        return size.given + taken * step

    return replace(size, least=end(size.least), most=end(size.most))


def _at(trial: Trial, size: Open, value: int) -> Fault | None:
    """Run model and program at one value of a size; return how they disagree, or None."""
    try:
        trial.run(size.sizes(value))
    except NotForModel as error:
        cause = error.__cause__ or error
        return Fault(f"the model does not take {value}: {first_line(cause)}", line_of(cause))
    except NotForTrace:
        return Fault(f"torch's trace excludes {value}", None)
    except WrongNumber:
        return Wrong(f"at {value} the exported program and the model differ", None)
    return None


def opened(program: ExportedProgram, inputs: Inputs) -> tuple[Open, ...]:
    """Return the dynamic sizes of a program, and the input axes that have them."""
    of_users = set(program.graph_signature.user_inputs)
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    fakes = [n.meta["val"] for n in nodes if n.name in of_users]
    tensors = [fake for fake in fakes if isinstance(fake, torch.Tensor)]
    places: dict[str, dict[Place, Any]] = {}
    for index, fake in enumerate(tensors):
        for axis, dim in enumerate(fake.shape):
            if isinstance(dim, torch.SymInt):
                for symbol in dim.node.expr.free_symbols:
                    places.setdefault(str(symbol), {})[index, axis] = dim.node.expr
    ranges = {
        str(symbol): range_constraint
        for symbol, range_constraint in program.range_constraints.items()
    }
    found: list[Open] = []
    for name, at in sorted(places.items()):
        alone = {place: expr for place, expr in at.items() if len(expr.free_symbols) == 1}
        if not alone:
            continue
        given = _solved(alone, inputs)
        low, high = ranges[name].lower, ranges[name].upper
        functions = {place: _function(expr) for place, expr in alone.items()}
        most = int(high) if high.is_Integer else 2 * given
        found.append(Open(name, given, functions, max(int(low), 1), most))
    return tuple(found)


def _function(expr: Any) -> Callable[[int], int]:
    (symbol,) = expr.free_symbols
    return lambda value: int(expr.subs(symbol, value))


def _solved(places: Mapping[Place, Any], inputs: Inputs) -> int:
    """Return a symbol's value in the example."""
    place, expr = min(places.items(), key=lambda held: len(str(held[1])))
    of, size = _function(expr), inputs.size(place)
    return next(n for n in range(size + 64) if of(n) == size)


@contextmanager
def _state_kept(module: torch.nn.Module) -> Generator[None]:
    """Restore a module's buffers at the end of the context."""
    before = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        for held, value in before:
            if held.shape == value.shape:
                held.copy_(value)


def _agree(one: list[Any], other: list[Any]) -> bool:
    if len(one) != len(other):
        return False
    return all(_is_close(a, b) for a, b in zip(one, other, strict=True))


def _is_close(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return True  # A number that the caller passed, or None.
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    one, other = one.double(), other.double()
    finite = one[one.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 1.0
    return torch.allclose(one, other, rtol=CLOSE, atol=CLOSE * largest, equal_nan=True)
