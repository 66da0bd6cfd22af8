"""Decide whether the pairs of values in a statement are equal expressions.

A statement is a method `@equal`: for all arguments, both halves of its results are equal.
"""

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.op_text import is_repeatable, text_of
from stepwell.dialects.quant.types import stored_dtype
from stepwell.ir.core import StateOp, WeightOp
from stepwell.ir.declared.interpretation import Interpreter, rule_for
from stepwell.ir.program import Program
from stepwell.ir.signature import get_signature
from stepwell.ir.sizes.size import Size, number_of
from stepwell.ir.types import dims, symbols_of
from stepwell.ir.weights import WeightStore
from stepwell.validation.certificates.checker.expressions import Arithmetic, Expressions, variable

SMALL = 4096  # The size up to which a constant that a rewrite created is read by its elements.
GIVEN = ", by the numbers of small weights"  # Small weights of the model are read as well.
TRIED = ", at sizes that were tried"
NARROWED = ", if narrowed integers are from 0 to 2147483647"
STEPPED = ", if no rounding crosses a step"
ASSUMED = (NARROWED, STEPPED, TRIED)
KINDS = ("bits", "reals", f"bits{GIVEN}", f"reals{GIVEN}")
MOST_STEPS = 1 << 16  # A loop in a statement may not end.
SCRATCH = ("scratch", "output_scratch")  # Sizes of memory, which an op's verifier checks.
Pairs = Sequence[tuple[SSAValue, SSAValue]]


class Undecided(Exception):
    """Raised when a claim is false or cannot be proved; the message is the reason."""


def pairs_of(program: Program) -> Pairs:
    """Return the pairs of values that a statement claims to be equal."""
    (method,) = program.methods.values()
    last: Any = method.body.block.last_op
    half = len(last.operands) // 2
    return list(zip(last.operands[:half], last.operands[half:], strict=True))


def is_constant(weights: WeightStore, key: str, given: bool = False) -> bool:
    """Whether the elements of a weight are part of a statement, also of a model's with `given`."""
    if weights.recipe_of(key) is not None or not weights.is_known(key):
        return False
    elements = prod(map(number_of, dims(weights.type_of(key))))
    return elements <= SMALL and (given or "#" in key or elements == 1)


def decide(
    program: Program, kinds: Sequence[str], seed: int = 0, pairs: Any = None, make: Any = Arithmetic
) -> str:
    """Return the first of some readings in which all pairs are equal, and what that assumes."""
    pairs, reason = pairs_of(program) if pairs is None else pairs, "no proof is claimed"
    for kind in kinds:
        made, bits, strict = (make(e, seed) for e in (kind.startswith("bits"), True, False))
        strict.exact, given, crosses = bits.stepped, kind.endswith(GIVEN), False
        try:
            for sizes in (choices := _sizes(program)):
                runs = [_Run(program.weights, a, given, sizes) for a in (made, bits, strict)]
                runs[0].compare(program, pairs)
                if made.steps and not (made.is_exact or crosses):
                    crosses = True
                    with suppress(Exception):  # Results of steps must be the same bit for bit.
                        runs[1].compare(program, ())
                        runs[2].compare(program, pairs)
                        crosses = strict.steps != bits.steps
            return kind + NARROWED * made.narrows + STEPPED * crosses + TRIED * (len(choices) > 1)
        except Exception as error:  # What cannot be followed is not decided.
            reason = f"it is not so: {error}"
    raise Undecided(reason)


def _sizes(program: Program) -> list[dict[str, int]]:
    """Return two choices of the symbolic sizes of a statement's inputs within their ranges."""
    (method,) = program.methods.values()
    types = [a.type for a in method.body.block.args if isinstance(a.type, TensorType)]
    symbols, ranges = sorted(symbols_of(types)), get_signature(method).ranges

    def size(symbol: str, number: int) -> int:
        low, high = ranges.get(symbol, (0, None))
        return max(number, low) if high is None else min(max(number, low), high)

    starts = (4, 6) if symbols else (4,)
    return [{s: size(s, start + 2 * at) for at, s in enumerate(symbols)} for start in starts]


class _Run(Interpreter):
    """An interpreter of a statement on expressions."""

    def __init__(self, store: WeightStore, arithmetic: Arithmetic, given: bool, sizes: Any) -> None:
        weights: Any = SimpleNamespace(get=self.weight, type_of=store.type_of)
        super().__init__(weights)
        self.store, self.arithmetic, self.given, self.sizes = store, arithmetic, given, sizes
        self.made, self.steps = dict[str, Any](), 0

    def compare(self, program: Program, pairs: Pairs) -> None:
        """Run a statement; raise an exception unless all pairs are equal."""
        (method,) = program.methods.values()
        arguments = enumerate(method.body.block.args)
        made: dict[SSAValue, Any] = {a: self.input(f"argument {n}", a.type) for n, a in arguments}
        with torch.no_grad():
            for op in method.body.block.ops:
                if not isinstance(op, ReturnOp):
                    self.step(op, made)
        for one, other in ((made[old], made[new]) for old, new in pairs):
            if one.dtype != other.dtype:
                raise Undecided(f"{one.dtype} is no {other.dtype}")
            if not torch.equal(self.arithmetic.numbers(one), self.arithmetic.numbers(other)):
                raise Undecided("they are other expressions")

    def shape_of(self, type_: Any) -> list[int]:
        return [d.evaluate(self.sizes) if isinstance(d, Size) else d for d in dims(type_)]

    def input(self, name: str, type_: Any, is_made: bool = False) -> Expressions:
        """Return a tensor whose elements are variables, also for an unknown function's result."""
        held = variable(name, self.shape_of(type_), self.arithmetic.seed)
        held = self.arithmetic.step("", held) if is_made else held
        return self.arithmetic.made(held, stored_dtype(type_))

    def step(self, op: Operation, environment: dict[SSAValue, Any]) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Undecided(f"a statement evaluates more than {MOST_STEPS} ops")
        if isinstance(op, WeightOp):
            environment[op.result] = self.weight(op.key.data)
        elif isinstance(op, StateOp):
            environment[op.result] = self.input(f"state {op.key.data}", op.result.type)
        else:
            operands = [environment[value] for value in op.operands]
            with suppress(Exception):
                environment.update(zip(op.results, self.rule(op, operands), strict=True))
                return
            # It is an unknown function of whole operands.
            text = f"{text_of(op, SCRATCH)}({', '.join(map(self.arithmetic.name_of, operands))})"
            text += "" if is_repeatable(op) else f" at step {self.steps}"
            for at, result in enumerate(op.results):
                environment[result] = self.input(f"{text}#{at}", result.type, True)

    def rule(self, op: Operation, operands: Sequence[Any]) -> Sequence[Any]:
        """Return the results by the interpreter's rule, in the shapes of the statement's text."""
        rule: Any = rule_for(type(op))
        if not is_repeatable(op):
            raise Undecided(op.name)
        if op.name in ("control.cond", "tosa.cond_if") and isinstance(operands[0], Expressions):
            ways = (rule(op, [torch.tensor(way), *operands[1:]], self) for way in (True, False))
            test = operands[0].reshape([])
            return [torch.where(test, one, other) for one, other in zip(*ways, strict=True)]
        results = rule(op, operands, self)
        for value, result in zip(results, op.results, strict=True):
            if isinstance(value, Tensor) and [*value.shape] != self.shape_of(result.type):
                raise Undecided(f"{op.name} has another result shape")
        return results

    def weight(self, key: str) -> Any:
        """Return a weight: arbitrary elements, unless it is derived or a small constant."""
        if key not in self.made:
            name, sources, parameters = self.store.recipe_of(key) or (f"weight {key}", (), {})
            given = [self.weight(source) for source in sources]
            if self.store.recipe_of(key) is not None:
                with suppress(Exception):
                    self.made[key] = self.store.evaluated_on(key, given)
            elif is_constant(self.store, key, self.given):
                self.made[key] = self.store.get(key)
            if key not in self.made:
                text = f"{name}{sorted(parameters.items())}{[*map(self.arithmetic.name_of, given)]}"
                self.made[key] = self.input(text, self.store.type_of(key), bool(given))
        return self.made[key]
