"""Whether numbers stay finite if matrix products do: an assumption, not a proof.

Sums, selections and data movement of finite numbers are assumed to be finite: overflow is ignored.
Intervals determine whether a divisor may be zero, or a root's operand negative. An infinite input
makes all of this false, so the functions here return a `Refusal` or None. A rewrite may refuse
based on them, but must still declare its deviation (`Deviation.unless`, which takes a `Proof`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from math import isfinite

from xdsl.ir import Operation, SSAValue

from stepwell.ir.core import weight_key
from stepwell.ir.declared.families import is_of
from stepwell.ir.declared.scalar_semantics import Scalar, Term, meaning
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.translate.range_analysis.analysis import Analysis, values_of
from stepwell.translate.range_analysis.evaluation import Evaluation, kind_of_value


@dataclass(frozen=True, slots=True)
class Class:
    """A class of numbers: whether elements of a value may be infinite, or NaN."""

    infinite: bool = True
    nan: bool = True

    @property
    def is_finite(self) -> bool:
        """Whether no element is infinite or NaN."""
        return not (self.infinite or self.nan)

    def __or__(self, other: Class) -> Class:
        """Return the union of two classes."""
        return Class(self.infinite or other.infinite, self.nan or other.nan)


FINITE, ANY = Class(False, False), Class()
_BOUNDED = frozenset(
    "sin cos tanh erf atan sign is_nan less less_equal equal not_ and_ or_ xor".split()
)
_OF_INFINITY = frozenset("total average sin cos divide modulo".split())
"""Functions that return NaN for one infinity."""
_OVERFLOWS = frozenset("exp expm1 sinh cosh".split())
_PARTIAL = frozenset(
    "divide quotient modulo reciprocal log log1p sqrt rsqrt power tan asin acos".split()
)
"""Functions that are not finite everywhere."""


@dataclass
class Classes(Analysis[Class]):
    """The values that may be infinite or NaN even if matrix products are finite.

    Attributes:
        inputs: the class of inputs.
        trusts_all: assume that ops without semantics, and exponentials, are finite too.
    """

    inputs: Class = FINITE
    trusts_all: bool = False

    def found(self, value: SSAValue) -> Class:
        """Return the class of a constant's elements, or evaluate the op that computes a value."""
        kind = kind_of_value(value)
        if kind is not None and not kind.is_float:
            return FINITE  # Integers and booleans are numbers.
        if (key := weight_key(value)) is not None:
            weight = self.program.weights.get(key)
            return Class(bool(weight.isinf().any()), bool(weight.isnan().any()))
        op = value.owner
        if is_of(op, "product"):
            return FINITE
        given = FINITE if self.trusts_all else ANY if isinstance(op, Operation) else self.inputs
        said = meaning(op) if isinstance(op, Operation) and kind is not None else None
        if said is None or not isinstance(op, Operation) or kind is None:
            return given
        if said.element is None:
            return reduce(Class.__or__, map(self.of_scalar, said.moved), FINITE)
        if value is not op.results[0]:
            return given
        values = values_of(self.program)
        held = self._of_term(said.element, Evaluation(values, op, kind))
        return Class(held.infinite and not values.of(value).is_bounded, held.nan)

    def of_scalar(self, given: Scalar) -> Class:
        """Return the class of an operand's element, or of a number."""
        if isinstance(given, Term):
            return ANY if given.value is None else self.of(given.value)
        return FINITE if isfinite(given) else Class(given == given, given != given)

    def _of_term(self, term: Scalar, ask: Evaluation) -> Class:
        if not isinstance(term, Term) or term.value is not None:
            return self.of_scalar(term)
        name, operands = term.function, term.operands
        if name == "where":
            operands = operands[1:]
        parts = [self._of_term(part, ask) for part in operands]
        held = reduce(Class.__or__, parts, FINITE)
        if name == "divide" and ask.is_part_of_sum(*operands) and ask(operands[0]).low >= 0:
            return held  # The sum is zero only if all terms are: there are none.
        if name in _PARTIAL and not _is_defined(name, ask, operands):
            return ANY
        makes_nan = held.infinite and name in _OF_INFINITY
        if name in ("add", "subtract"):
            makes_nan = all(part.infinite for part in parts)
        if name == "multiply":
            pairs = zip(parts, reversed(operands), strict=True)
            makes_nan = any(part.infinite and ask(other).meets_zero for part, other in pairs)
        overflows = name in _OVERFLOWS and not self.trusts_all and not ask(term).is_bounded
        infinite = (held.infinite or overflows) and name not in _BOUNDED
        return Class(infinite, held.nan or makes_nan)


def _is_defined(name: str, ask: Evaluation, operands: tuple[Scalar, ...]) -> bool:
    """Whether a function of finite numbers in these ranges is finite."""
    match name:
        case "divide" | "quotient" | "modulo":
            return not ask(operands[1]).meets_zero
        case "reciprocal":
            return not ask(operands[0]).meets_zero
        case "log" | "rsqrt":
            return ask(operands[0]).low > 0
        case "log1p":
            return ask(operands[0]).low > -1
        case "sqrt":
            return ask(operands[0]).low >= 0
        case "asin" | "acos":
            return ask(operands[0]).most <= 1
        case _:
            return False


def trusts_finite(
    values: Iterable[SSAValue], program: Program, why: str, inputs: Class = FINITE
) -> Refusal | None:
    """Refuse, with the given reason, a value that may be infinite or NaN for inputs of the assumed
    classes.
    """
    classes = Classes(program, inputs=inputs)
    return None if all(classes.of(value).is_finite for value in values) else Refusal(why)


def trusts_no_nan(value: SSAValue, program: Program) -> Refusal | None:
    """Refuse a value that an op since the last matrix product may make NaN; name the op."""
    classes = Classes(program, trusts_all=True)
    while classes.of(value).nan and isinstance(op := value.owner, Operation):
        value = next((v for v in op.operands if v in classes.known and classes.of(v).nan), value)
        if value in op.results:
            return Refusal(f"{op.name} may make a NaN that the mask hides")
    return None
