"""Whether numbers stay finite, as long as what a model's layers compute is.

Products, sums, choices and layouts of finite numbers are finite; that a product might overflow is
left out of account, as it is for attention's scores themselves. Whether a divisor may be zero, and
a root's operand negative, intervals say.
"""

from __future__ import annotations

from functools import reduce
from math import isfinite

from xdsl.ir import Operation, SSAValue

from stepwell.ir.core import weight_key
from stepwell.ir.declared.families import is_of
from stepwell.ir.declared.means import Scalar, Term, meaning
from stepwell.ir.dtypes import is_float
from stepwell.ir.program import Program
from stepwell.ir.records import dataclass
from stepwell.ir.types import element
from stepwell.translate.values.engine import Analysis, values_of
from stepwell.translate.values.evaluation import Evaluation, kind_of_value


@dataclass(frozen=True, slots=True)
class Class:
    """Whether elements may be infinite, or NaN."""

    infinite: bool = True
    nan: bool = True

    @property
    def is_finite(self) -> bool:
        """Whether they are neither."""
        return not (self.infinite or self.nan)

    def __or__(self, other: Class) -> Class:
        """What is of one of two classes."""
        return Class(self.infinite or other.infinite, self.nan or other.nan)


FINITE, ANY = Class(False, False), Class()
_BOUNDED = frozenset(
    "sin cos tanh erf atan sign is_nan less less_equal equal not_ and_ or_ xor".split()
)
_OF_INFINITY = frozenset("total average sin cos divide modulo".split())
"""Functions that make NaN of one infinity."""
_OVERFLOWS = frozenset("exp expm1 sinh cosh".split())
_PARTIAL = frozenset(
    "divide quotient modulo reciprocal log log1p sqrt rsqrt power tan asin acos".split()
)
"""Functions that are not finite everywhere."""


@dataclass
class Classes(Analysis[Class]):
    """What may be infinite or NaN though what products of matrices give is finite.

    Attributes:
        trusts: take what is not known, inputs and ops without meaning, as finite, and exponentials.
        of_numbers: inputs are finite.
    """

    trusts: bool = False
    of_numbers: bool = False

    def found(self, value: SSAValue) -> Class:
        """From constants, and from the meaning of the op."""
        kind = kind_of_value(value)
        if kind is not None and not kind.is_float:
            return FINITE  # Integers and truth values are numbers.
        if (key := weight_key(value)) is not None:
            weight = self.program.weights.get(key)
            return Class(bool(weight.isinf().any()), bool(weight.isnan().any()))
        op = value.owner
        if is_of(op, "product"):
            return FINITE
        is_input = not isinstance(op, Operation)
        given = FINITE if self.trusts or (self.of_numbers and is_input) else ANY
        said = meaning(op) if isinstance(op, Operation) and kind is not None else None
        if said is None or not isinstance(op, Operation) or kind is None:
            return given
        if said.element is None:
            return reduce(Class.__or__, map(self.of_scalar, said.moved), FINITE)
        if value is not op.results[0]:
            return given
        return self._of_term(said.element, Evaluation(values_of(self.program), op, kind))

    def of_scalar(self, given: Scalar) -> Class:
        """The class of an operand's element, or of a number."""
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
            return held  # The sum is zero where all are: a softmax of no number.
        if name in _PARTIAL and not _is_defined(name, ask, operands):
            return ANY
        makes_nan = held.infinite and name in _OF_INFINITY
        if name in ("add", "subtract"):
            makes_nan = all(part.infinite for part in parts)
        if name == "multiply":
            pairs = zip(parts, reversed(operands), strict=True)
            makes_nan = any(part.infinite and ask(other).meets_zero for part, other in pairs)
        overflows = name in _OVERFLOWS and not self.trusts and not ask(term).is_bounded
        infinite = (held.infinite or overflows) and name not in _BOUNDED
        return Class(infinite, held.nan or makes_nan)


def _is_defined(name: str, ask: Evaluation, operands: tuple[Scalar, ...]) -> bool:
    """Whether a function of finite numbers is finite where these lie."""
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


def is_finite(value: SSAValue, program: Program) -> bool:
    """Whether no element is infinite or NaN, activations being finite, and inputs anything."""
    return not is_float(element(value.type)) or Classes(program).of(value).is_finite


def is_finite_of_numbers(value: SSAValue, program: Program) -> bool:
    """The same where inputs are finite too."""
    return Classes(program, of_numbers=True).of(value).is_finite


def maker_of_nan(value: SSAValue, program: Program) -> Operation | None:
    """The op since the last product of matrices that may make a NaN of finite numbers; or None."""
    classes = Classes(program, trusts=True)
    while classes.of(value).nan and isinstance(op := value.owner, Operation):
        value = next((v for v in op.operands if v in classes.known and classes.of(v).nan), value)
        if value in op.results:
            return op
    return None
