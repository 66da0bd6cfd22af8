"""Model floats for the solver as real numbers, with axioms about functions like `exp`."""

import math
from collections.abc import Iterator
from itertools import combinations, permutations
from typing import Any

from xdsl.ir import Attribute

from stepwell.ir.dtypes import f64, i64, is_float
from stepwell.validation.rules.numbers import Number, Unproven
from stepwell.validation.rules.scalars import RING, Domain, is_of_rule, is_signed, width
from stepwell.validation.rules.solver import z3

_MOST = 8
"""The number of applications of one function for which axioms are stated."""
HUGE = 1e37
"""A number above this is treated as a limit of float32."""


class Reals(Domain):
    """The solver domain that treats floats as real numbers. Axioms are instantiated for the terms
    that occur.
    """

    is_exact = False

    def __init__(self) -> None:
        super().__init__()
        self.greatest = z3.Real("infinity")
        """Greater than everything that is compared with it; a clamp may have it as a bound."""
        self.whole: dict[int, Any] = {}
        self.has_infinity = False
        self.largest: float | None = None
        """The greatest constant, if it is a limit of a type."""
        self.applied: dict[str, dict[int, tuple[Any, Any]]] = {}
        """Function → (argument, value) of each application."""

    def float_sort(self, of: Attribute) -> Any:
        return z3.RealSort()

    def float_constant(self, value: float, of: Attribute) -> Any:
        if math.isnan(value):
            raise Unproven("NaN is no real number")
        if math.isinf(value):
            self.has_infinity = True
            return self.greatest if value > 0 else -self.greatest
        if abs(value) > HUGE:
            self.largest = max(abs(value), self.largest or 0.0)
        top, bottom = value.as_integer_ratio()
        return z3.Q(top, bottom)

    def rounded(self, term: Any, given: Attribute, of: Attribute) -> Any:
        return term

    def of_integer(self, term: Any, given: Attribute, of: Attribute) -> Any:
        if given == i64 and is_of_rule(term):
            whole = z3.Int(f"{term.decl().name()}.whole")
            if whole.get_id() not in self.whole:
                self.whole[whole.get_id()] = whole
                self.facts += [(term < 0) == (whole < 0), (term > 0) == (whole > 0)]
                self.facts += [(term == n) == (whole == n) for n in (-1, 1, 2)]
            return z3.ToReal(whole)
        return z3.ToReal(z3.BV2Int(term, is_signed=is_signed(given)))

    def to_integer(self, term: Any, of: Attribute) -> Any:
        whole = z3.If(term < 0, -z3.ToInt(-term), z3.ToInt(term))
        return z3.Int2BV(whole, width(of))

    def on_floats(self, function: str, terms: list[Any], of: Attribute) -> Any:
        if function in RING:
            return RING[function](*terms)
        x, *rest = terms
        match function, rest:
            case ("absolute", _):
                return z3.If(x < 0, -x, x)
            case ("divide", [y]):
                return x / y
            case ("reciprocal", _):
                return 1 / x
            case ("rsqrt", _):
                return 1 / self.on_floats("sqrt", [x], of)
            case ("expm1", _):
                return self.on_floats("exp", [x], of) - 1
            case ("log1p", _):
                return self.on_floats("log", [1 + x], of)
            case ("floor", _):
                return z3.ToReal(z3.ToInt(x))
            case ("ceil", _):
                return -z3.ToReal(z3.ToInt(-x))
            case ("is_nan", _):
                return z3.BoolVal(False)
            case ("less", [y]):
                return x < y
            case ("less_equal", [y]):
                return x <= y
            case ("minimum", [y]):
                return z3.If(y < x, y, x)
            case ("maximum", [y]):
                return z3.If(x < y, y, x)
            case _:
                real = z3.RealSort()
                made = self.function(function, *(real for _ in terms), real)(*terms)
                if len(terms) == 1:
                    self.applied.setdefault(function, {})[made.get_id()] = (x, made)
                return made

    def as_type(self, node: Number, of: Attribute) -> Any:
        if node.is_int and is_float(of) and node.function in ("variable", *RING, "absolute"):
            if node.function == "variable":
                return super().as_type(node, of)
            return self.on_floats(node.function, [self.as_type(n, of) for n in node.operands], of)
        return super().as_type(node, of)

    def of_number(self, function: str, terms: list[Any], node: Number) -> Any:
        if function == "single":
            return terms[0]
        return super().of_number(function, terms, node)

    def kind_of_number(self, function: str, term: Any, is_int: bool) -> Any:
        if function == "signbit":
            return term < 0
        return z3.BoolVal(function == "isfinite")

    def laws(self) -> list[Any]:
        """Return the solver's axioms about the functions (`exp`, `sqrt`, …) that occur in the
        terms.
        """
        tanhs = list(self.applied.get("tanh", {}).values())
        powers = [self.on_floats("exp", [z3.simplify(2 * x)], f64) for x, _ in tanhs]
        exps = list(self.applied.get("exp", {}).values())[:_MOST]
        found = list(_of_exp(exps))
        for (_, value), power in zip(tanhs, powers, strict=True):
            found.append(value * (power + 1) == power - 1)
        for x, value in self.applied.get("sqrt", {}).values():
            found.append(z3.Implies(x >= 0, z3.And(value >= 0, value * value == x)))
            found.append(z3.Implies(x > 0, value > 0))
        for x, value in self.applied.get("sign", {}).values():
            sign = z3.If(x > 0, z3.RealVal(1), z3.If(x < 0, z3.RealVal(-1), z3.RealVal(0)))
            found.append(value == sign)
        return [*found, *_of_log(list(self.applied.get("log", {}).values())[:_MOST], exps)]


def _of_exp(exps: list[tuple[Any, Any]]) -> Iterator[Any]:
    for x, value in exps:
        yield value > 0
        yield z3.Implies(x == 0, value == 1)
        yield (x <= 0) == (value <= 1)
        yield value >= 1 + x
        for at in (20, 16):
            yield z3.Implies(x >= at, value > z3.Q(*(math.exp(at) * 0.9999999).as_integer_ratio()))
            yield z3.Implies(
                x <= -at, value < z3.Q(*(math.exp(-at) * 1.0000001).as_integer_ratio())
            )
    for (x, one), (y, other) in combinations(exps, 2):
        yield (x <= y) == (one <= other)
        yield z3.Implies(x == -y, one * other == 1)
        yield z3.Implies(x == 2 * y, one == other * other)
        yield z3.Implies(y == 2 * x, other == one * one)
    if len(exps) <= 5:
        for (x, a), (y, b), (s, c) in permutations(exps, 3):
            yield z3.Implies(s == x + y, c == a * b)


def _of_log(logs: list[tuple[Any, Any]], exps: list[tuple[Any, Any]]) -> Iterator[Any]:
    for x, value in logs:
        yield z3.Implies(x == 1, value == 0)
        yield z3.Implies(x > 1, value > 0)
        yield z3.Implies(x > 0, value <= x - 1)
        for at, power in exps:
            yield z3.Implies(x == power, value == at)
            yield z3.Implies(z3.And(x > 0, at == value), power == x)
            yield z3.Implies(z3.And(x > 0, at == 2 * value), power == x * x)
    for (x, one), (y, other) in permutations(logs, 2):
        yield z3.Implies(z3.And(x == y), one == other)
        for at, power in exps:
            yield z3.Implies(z3.And(y > 0, x == y * power), one == other + at)
