"""Decide whether the pairs of values in a statement are equal: by expression numbering, or by
running the statement on all inputs.

Layers of a model repeat, and so do the applications in them: so statements that differ only in
names are decided once (`Decisions`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor
from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue

import stepwell.validation.certificates.lookups  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.dialects.quant.types import stored_dtype
from stepwell.ir.core import StateOp, WeightOp
from stepwell.ir.declared.interpretation import Interpreter, rule_for
from stepwell.ir.diagnostics import StepwellError, first_line
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History
from stepwell.ir.sizes.size import Size, number_of
from stepwell.ir.types import dims, is_static, symbols_of
from stepwell.ir.weights import WeightStore
from stepwell.translate.rewrites.sizes.pin_symbolic_sizes import PinSymbolicSizes
from stepwell.validation.certificates.graph import is_repeatable, text_of
from stepwell.validation.certificates.shadows import NotFollowed, Reading, Shadow
from stepwell.validation.certificates.statements import MOST_ELEMENTS, elements_of, pairs_of, read
from stepwell.validation.derived import C_LIBRARY

SMALL = 4096
"""The size up to which a constant that a rewrite created is read by its elements."""
GIVEN = ", by the numbers of small weights"
"""The suffix of a reading in which small weights of the model, such as scales, are read by their
elements.
"""
TRIED = ", at sizes that were tried"
KINDS = ("bits", "reals", f"bits{GIVEN}", f"reals{GIVEN}")
"""The readings that decide a statement, those for any weights first."""
FAILS = (
    NotFollowed, StepwellError, RuntimeError, ValueError, TypeError, IndexError, KeyError,
    AttributeError, NotImplementedError, AssertionError,
)  # fmt: skip


MOST_STEPS = 1 << 16
"""The step limit of a statement, because a loop in it may not terminate."""
SCRATCH = ("scratch", "output_scratch")
"""Properties that no result depends on: sizes of memory, which the op's verifier checks."""
_CHOICES = ("control.cond", "tosa.cond_if")
_WAYS = (True, False)


class Undecided(Exception):
    """Raised when a certificate's statement can be neither proved nor refuted; the message is the
    reason.
    """


Pairs = Sequence[tuple[SSAValue, SSAValue]]


def decide(
    program: Program,
    kinds: Sequence[str],
    seed: int = 0,
    pairs: Pairs | None = None,
    numbers: Mapping[float, str] | None = None,
) -> str:
    """Return the first reading (bitwise or real arithmetic) in which all pairs of a statement are
    equal.

    A statement of symbolic sizes is decided at two choices of them, and the reading says so.

    Args:
        program: the statement, a program with one method.
        kinds: the readings to try, in order.
        seed: the seed of the variables.
        pairs: the pairs to compare; by default those of the method's results.
        numbers: plain numbers that represent arbitrary ones, with their names.

    Raises:
        Undecided: the pairs are equal in no reading; the message has the reason.
    """
    sizes = [] if pairs is not None else list(_at_sizes(program))
    if sizes:
        found = [decide(each, kinds, seed, numbers=numbers) for each in sizes]
        return max(found, key=KINDS.index) + TRIED
    reason = ""
    for kind in kinds:
        plain = kind.removesuffix(GIVEN)
        run = _Run(program.weights, Reading(plain, seed, numbers), given=plain != kind)
        try:
            apart = run.apart(program, pairs_of(program) if pairs is None else pairs)
        except FAILS as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            continue
        if apart is None:
            return kind
        reason = apart
    raise Undecided(reason)


def _at_sizes(program: Program) -> Iterator[Program]:
    """Yield copies of a statement in which concrete sizes replace symbolic ones; nothing if all its
    sizes are static.

    Raises:
        Undecided: the range of a size is unknown, or it has no concrete value.
    """
    (method,) = program.methods.values()
    types = [a.type for a in method.body.block.args if isinstance(a.type, TensorType)]
    symbols = sorted(symbols_of(types))
    if not any(isinstance(d, Size) for t in types for d in dims(t)):
        return
    for start in (4, 6):
        copy = Program(program.module.clone(), program.weights)
        chosen = {symbol: start + 2 * at for at, symbol in enumerate(symbols)}
        try:
            PinSymbolicSizes.of(chosen).apply(copy, History())
        except FAILS as error:
            raise Undecided(f"of symbolic sizes: {error}") from error
        if elements_of(copy) > MOST_ELEMENTS:
            raise Undecided("of symbolic sizes: its values have too many elements")
        yield copy


class _Shadows:
    """A weight store whose tensors are symbolic (shadows)."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    def get(self, key: str) -> Any:
        """Return the symbolic tensor (shadow) of a weight."""
        return self._run.weight(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run.weights, name)


class _Shadowing(Interpreter):
    """An interpreter of regions that reads symbolic weights."""

    run: _Run

    def step(self, op: Operation, environment: dict[SSAValue, Any]) -> None:
        """Evaluate one op, binding its results."""
        operands = [environment[value] for value in op.operands]
        environment.update(zip(op.results, self.run.results(op, operands), strict=True))


class _Run:
    """An interpreter run of a statement on symbolic tensors (shadows)."""

    def __init__(self, weights: WeightStore, reading: Reading, given: bool) -> None:
        self.weights, self.reading, self.given = weights, reading, given
        held: Any = _Shadows(self)
        self.interpreter = _Shadowing(held)
        self.interpreter.run = self
        self._made: dict[str, Any] = {}
        self._steps = 0

    def apart(self, program: Program, pairs: Pairs) -> str | None:
        """Run a statement on symbolic tensors, and describe the first pair of values that differ;
        None if all pairs are equal.
        """
        environment: dict[SSAValue, Any] = {}
        (method,) = program.methods.values()
        block = method.body.block
        for number, argument in enumerate(block.args):
            environment[argument] = self.input(f"argument {number}", argument.type)
        with torch.no_grad():
            for op in block.ops:
                if not isinstance(op, ReturnOp):
                    operands = [environment[value] for value in op.operands]
                    results = self.results(op, operands)
                    environment.update(zip(op.results, results, strict=True))
        for old, new in pairs:
            one, other = environment[old], environment[new]
            if not isinstance(one, Tensor) or not isinstance(other, Tensor):
                return "a result is no tensor"
            if one.dtype != other.dtype or one.shape != other.shape:
                return f"{one.dtype}{list(one.shape)} is no {other.dtype}{list(other.shape)}"
            if not torch.equal(self.reading.numbers(one), self.reading.numbers(other)):
                return f"{self.reading.kind}: they are other expressions"
        return None

    def input(self, name: str, type_: Any) -> Shadow:
        """Return the symbolic tensor (shadow) of a program input, whose elements are variables."""
        if not isinstance(type_, TensorType):
            raise NotFollowed(f"an input of type {type_}")
        if not is_static(type_):
            raise NotFollowed(f"an input with a symbolic size, {type_}")
        return self.reading.variable(name, [*map(number_of, dims(type_))], stored_dtype(type_))

    def results(self, op: Operation, operands: Sequence[Any]) -> Sequence[Any]:
        """Return an op's results, by its transfer function or as an uninterpreted function."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise NotFollowed(f"more than {MOST_STEPS} steps")
        if isinstance(op, WeightOp):
            return [self.weight(op.key.data)]
        if isinstance(op, StateOp):
            return [self.input(f"state {op.key.data}", op.result.type)]
        rule = rule_for(type(op)) if is_repeatable(op) else None
        if rule is not None and op.name in _CHOICES and isinstance(operands[0], Shadow):
            ways = [rule(op, [torch.tensor(w), *operands[1:]], self.interpreter) for w in _WAYS]
            test = operands[0].reshape([])
            return [torch.where(test, one, other) for one, other in zip(*ways, strict=True)]
        if rule is not None:
            try:
                if (steps := C_LIBRARY.get(op.name)) is not None:
                    return [steps(*operands[: _read_by(steps)])]
                return self._fitting(op, rule(op, operands, self.interpreter))
            except FAILS:
                pass
        names = ", ".join(self.reading.name_of(value) for value in operands)
        text = f"{text_of(op, SCRATCH)}({names})"
        text += "" if is_repeatable(op) else f" at step {self._steps}"
        return [
            self.input(f"{text}#{number}", result.type) for number, result in enumerate(op.results)
        ]

    def _fitting(self, op: Operation, results: Sequence[Any]) -> Sequence[Any]:
        """Return an op's results, reshaped to the shapes in the statement's text."""
        for value, result in zip(results, op.results, strict=True):
            is_tensor = isinstance(value, Tensor) and isinstance(result.type, TensorType)
            if is_tensor and list(value.shape) != list(dims(result.type)):
                raise NotFollowed(f"{op.name} has another result shape")
        return results

    def weight(self, key: str) -> Any:
        """Return a weight: arbitrary elements, unless it is derived or a small constant."""
        if key not in self._made:
            self._made[key] = self._weight(key)
        return self._made[key]

    def _weight(self, key: str) -> Any:
        recipe, text = self.weights.recipe_of(key), f"weight {key}"
        if recipe is not None:
            name, sources, parameters = recipe
            weights = [self.weight(source) for source in sources]
            try:
                return self.weights.evaluated_on(key, weights)
            except FAILS:
                named = [self.reading.name_of(weight) for weight in weights]
                text = f"{name}{sorted(parameters.items())}({named})"
        elif is_constant(self.weights, key, self.given):
            return self.weights.get(key)
        return self.input(text, self.weights.type_of(key))


def _read_by(steps: Any) -> int:
    return 2 if steps is C_LIBRARY["tosa.pow"] else 1


def is_constant(weights: WeightStore, key: str, given: bool = False) -> bool:
    """Whether a given (not derived) weight is a small constant whose elements are part of the
    statement.

    Args:
        weights: the store.
        key: the weight's key.
        given: whether the model's own weights are included.
    """
    if weights.recipe_of(key) is not None or not weights.is_known(key):
        return False
    count = prod(map(number_of, dims(weights.type_of(key))))
    return count <= SMALL and (given or "#" in key or count == 1)


_NAMED = re.compile(r'stepwell\.weight <"((?:[^"\\]|\\.)*)">|"(?:[^"\\]|\\.)*"|%v\d+')
"""A weight, another string, which is kept, or a value."""


@dataclass
class Decisions:
    """A cache of the proofs of statements that were decided over one weight store."""

    weights: WeightStore
    seed: int = 0
    made: dict[tuple[str, tuple[str, ...]], str | Undecided] = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]

    def decide(self, text: str, kinds: Sequence[str]) -> str:
        """Return the first reading (bitwise or real arithmetic) in which a statement holds.

        Raises:
            Undecided: it holds in no reading.
        """
        given = any(kind.endswith(GIVEN) for kind in kinds)
        key = renamed(text, self.weights, given), tuple(kinds)
        if key not in self.made:
            try:
                self.made[key] = decide(read(text, self.weights)[0], kinds, self.seed)
            except Undecided as error:
                self.made[key] = error
        found = self.made[key]
        if isinstance(found, Undecided):
            raise found
        return found


def renamed(text: str, weights: WeightStore, given: bool = False) -> str:
    """Return a statement with values and weights renamed by the order of their occurrence.

    Args:
        text: the statement.
        weights: its weight store.
        given: whether small weights are distinguished by their elements.
    """
    values: dict[str, str] = {}
    leaves: dict[str, str] = {}

    def said(key: str) -> str:
        if key not in weights:
            return key
        recipe = weights.recipe_of(key)
        if recipe is not None:
            name, sources, parameters = recipe
            return f"{name}{sorted(parameters.items())}({', '.join(map(said, sources))})"
        if is_constant(weights, key, given):
            return f"constant {key}"
        return leaves.setdefault(key, f"any {len(leaves)}: {weights.type_of(key)}")

    def called(found: re.Match[str]) -> str:
        if found[1] is not None:
            return f"stepwell.weight <{said(found[1])}>"
        name = found[0]
        return name if name[0] == '"' else values.setdefault(name, f"%{len(values)}")

    return _NAMED.sub(called, text)
