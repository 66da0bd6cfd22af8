"""Write terms of scalar semantics as C expressions: functions that compute an element of a result.

Each distinct application becomes a `const`, so that a float is rounded to the result's element type
at each primitive. Integers are `int64_t` and wrap when they are stored.
"""

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from xdsl.ir import Attribute

from stepwell.ir.declared.scalar_semantics import Scalar, Term
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.dtypes import f64, i1, is_float

Kind = Literal["truth", "whole", "float", "double"]
_ORDER: tuple[Kind, ...] = ("truth", "whole", "float", "double")
C_KIND: dict[Kind, str] = {
    "truth": "int",
    "whole": "int64_t",
    "float": "float",
    "double": "double",
}
"""The C type in which numbers of a kind are computed."""


@dataclass(frozen=True)
class Number:
    """A C expression without side effects, and the kind of its number."""

    text: str
    kind: Kind


def kind_of(type_: Attribute) -> Kind:
    """Return the kind of the elements of a type."""
    if type_ == i1:
        return "truth"
    if is_float(type_):
        return "double" if type_ == f64 else "float"
    return "whole"


def constant(value: float, kind: Kind) -> str:
    """Return the exact C literal of a number in a kind; a truth value is whether it is not 0.

    Raises:
        UnsupportedError: an integer is infinite or no number.
    """
    if kind == "truth":
        return "1" if value != 0 else "0"
    if kind == "whole":
        if not math.isfinite(value):
            raise UnsupportedError(f"the constant {value} is no integer")
        whole = int(value)
        return "INT64_MIN" if whole == -(1 << 63) else f"{whole}" + "LL" * (abs(whole) >> 31 > 0)
    value, suffix = float(value), "" if kind == "double" else "f"
    if kind == "float":
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = math.copysign(math.inf, value)
    if math.isnan(value):
        return "(double)NAN" if kind == "double" else "NAN"
    if math.isinf(value):
        infinity = "(double)INFINITY" if kind == "double" else "INFINITY"
        return infinity if value > 0 else f"-{infinity}"
    short = repr(value)
    exact = value == int(value) and abs(value) < 1e6
    return (short if exact else value.hex()) + suffix


def end_of(kind: Kind, sign: str = "-") -> str:
    """Return the smallest value of a kind, or the largest with `sign=""`."""
    if kind in ("truth", "whole"):
        return "INT64_MIN" if sign else "INT64_MAX"
    return sign + constant(math.inf, kind)


def loops(sizes: Mapping[str, int], body: Sequence[str]) -> list[str]:
    """Nest statements in C loops, one for each variable and its size, the outermost first."""
    lines = list(body)
    for name, size in reversed([*sizes.items()]):
        head = f"for (int32_t {name} = 0; {name} < {size}; {name}++) {{"
        lines = [head, *(f"    {line}" for line in lines), "}"]
    return lines


def _widest(numbers: Sequence[Number]) -> Kind:
    """Return the kind that can represent all of these."""
    return _ORDER[max(_ORDER.index(number.kind) for number in numbers)]


def as_kind(number: Number, kind: Kind) -> str:
    """Return the expression of a number, converted to a kind."""
    if number.kind == kind:
        return number.text
    if kind == "truth":
        return f"({number.text} != 0)"
    if kind == "whole" and number.kind in ("float", "double"):
        return f"sw_whole({as_kind(number, 'double')})"
    return f"({C_KIND[kind]}){number.text}"


_MATH = {
    "exp": "exp", "expm1": "expm1", "log": "log", "log1p": "log1p", "sqrt": "sqrt", "sin": "sin",
    "cos": "cos", "tan": "tan", "tanh": "tanh", "erf": "erf", "atan": "atan", "asin": "asin",
    "acos": "acos", "sinh": "sinh", "cosh": "cosh", "floor": "floor", "ceil": "ceil",
    "round": "nearbyint", "trunc": "trunc", "absolute": "fabs", "power": "pow",
    "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "atan2": "atan2", "fmod": "fmod",
}  # fmt: skip
"""Primitive → the function of `math.h`."""
_OF_FLOATS = {
    **{name: f"{function}{{f}}({{all}})" for name, function in _MATH.items()},
    "add": "{0} + {1}", "subtract": "{0} - {1}", "multiply": "{0} * {1}", "divide": "{0} / {1}",
    "negate": "-{0}", "reciprocal": "{one} / {0}", "rsqrt": "{one} / sqrt{f}({0})",
    "sign": "({c_kind})(({0} > 0) - ({0} < 0))",
}  # fmt: skip
"""Primitive → its expression; `f` is the suffix of functions of `float`."""
_OF_WHOLE = {
    "add": "sw_wrap((uint64_t){0} + (uint64_t){1})",
    "subtract": "sw_wrap((uint64_t){0} - (uint64_t){1})",
    "multiply": "sw_wrap((uint64_t){0} * (uint64_t){1})",
    "negate": "sw_wrap(0U - (uint64_t){0})",
    "absolute": "({0} < 0) ? -{0} : {0}",
    "sign": "({0} > 0) - ({0} < 0)",
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), "{0}"),
}
"""Sums and products wrap without undefined behavior."""
_ALWAYS_FLOAT = frozenset(_MATH) - {"floor", "ceil", "round", "trunc", "absolute", "power"} | {
    "rsqrt", "reciprocal", "divide",
}  # fmt: skip
_COMPARED = {"less": "<", "less_equal": "<=", "equal": "=="}
_BITS = {"and_": "&", "or_": "|", "xor": "^"}
_SECTIONS = frozenset({"maximum", "minimum", "quotient", "modulo"})
"""Primitives that are functions of ours: `sw_float_maximum` (`portable_kernels.c`)."""


@dataclass
class Body:
    """Statements that compute terms, in order, at one depth of loops.

    Attributes:
        leaf: a function that returns the number of an `element` or a reduction; None for other
            terms.
        result: the kind of the result, to which floats are rounded.
        prefix: the prefix of names of variables.
    """

    leaf: Callable[[Term], Number | None]
    result: Kind
    prefix: str = "t"
    lines: list[str] = field(default_factory=list[str])
    sections: set[str] = field(default_factory=set[str])
    known: dict[int, Number] = field(default_factory=dict[int, Number])

    def number(self, given: Scalar, like: Kind | None = None) -> Number:
        """Return the expression of a term or a number.

        Args:
            given: the term.
            like: the kind of the other operand, which a Python number takes if it can.
        """
        if isinstance(given, Term):
            if id(given) not in self.known:
                self.known[id(given)] = self._named(given)
            return self.known[id(given)]
        kind = like or self.result
        is_whole = math.isfinite(given) and float(given) == int(given)
        if kind in ("truth", "whole") and not is_whole:
            kind = "float"
        if kind == "truth" and given not in (0, 1):
            kind = "whole"
        return Number(constant(given, kind), kind)

    def _named(self, term: Term) -> Number:
        found = self.leaf(term) or self._applied(term)
        if found.text.isidentifier():
            return found
        name = f"{self.prefix}{len(self.lines)}"
        self.lines.append(f"const {C_KIND[found.kind]} {name} = {found.text};")
        return Number(name, found.kind)

    def _kinds(self, operands: tuple[Scalar, ...]) -> tuple[list[Number], Kind]:
        """Return the operands and the widest of their kinds; Python numbers take the other
        operand's kind.
        """
        terms = [self.number(each) for each in operands if isinstance(each, Term)]
        numbers = [self.number(each, _widest(terms) if terms else None) for each in operands]
        return numbers, _widest(numbers)

    def _applied(self, term: Term) -> Number:
        name = term.function
        if name == "where":
            condition = as_kind(self.number(term.operands[0]), "truth")
            (one, other), kind = self._kinds(term.operands[1:])
            return Number(f"{condition} ? {as_kind(one, kind)} : {as_kind(other, kind)}", kind)
        numbers, kind = self._kinds(term.operands)
        if name == "cast":
            assert term.to is not None
            self.sections.add("whole_numbers")
            return Number(as_kind(numbers[0], kind_of(term.to)), kind_of(term.to))
        if name in _ALWAYS_FLOAT and kind in ("truth", "whole"):
            kind = self.result if self.result in ("float", "double") else "float"
        operands = [as_kind(number, kind) for number in numbers]
        return self._function(name, operands, kind)

    def _function(self, name: str, x: list[str], kind: Kind) -> Number:
        is_float = kind in ("float", "double")
        if name in _COMPARED:
            return Number(f"({x[0]} {_COMPARED[name]} {x[1]})", "truth")
        if name == "not_":
            return Number(f"({x[0]} == 0)", "truth")
        if name == "is_nan":
            return Number(f"({x[0]} != {x[0]})" if is_float else "0", "truth")
        if name in _BITS:
            return Number(f"({x[0]} {_BITS[name]} {x[1]})", kind)
        if name == "invert":
            return Number(f"({x[0]} == 0)" if kind == "truth" else f"~{x[0]}", kind)
        if kind == "truth":
            kind, x = "whole", [f"(int64_t){each}" for each in x]
        if name in _SECTIONS:
            self.sections.add(f"{kind}_numbers")
            return Number(f"sw_{kind}_{name}({', '.join(x)})", kind)
        form = (_OF_FLOATS if is_float else _OF_WHOLE).get(name)
        if form is None:
            numbers = "floats" if is_float else "integers"
            raise UnsupportedError(f"{name} of {numbers} cannot be written in C")
        if form.startswith("sw_wrap"):
            self.sections.add("whole_numbers")
        suffix = "f" if kind == "float" else ""
        one, c_kind = constant(1, kind), C_KIND[kind]
        return Number(form.format(*x, all=", ".join(x), f=suffix, one=one, c_kind=c_kind), kind)
