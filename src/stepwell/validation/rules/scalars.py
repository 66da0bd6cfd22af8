"""Represent typed scalars as terms of the solver: floats bit for bit, or as real numbers.

`Bits` has IEEE floats with one NaN and both zeros, rounded at each primitive, and integers that
wrap. `Reals` (`reals.py`) has real numbers for floats. A function that neither computes (`exp`,
`erf`, sums) is an uninterpreted function, for which `Reals` has axioms.
"""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import IntegerType, Signedness
from xdsl.ir import Attribute

from stepwell.ir.dtypes import bf16, f16, f32, f64, i1, i64, is_float
from stepwell.validation.rules.numbers import Number, Unproven
from stepwell.validation.rules.solver import z3

_FORMATS: dict[Attribute, tuple[int, int]] = {
    f16: (5, 11), bf16: (8, 8), f32: (8, 24), f64: (11, 53),
}  # fmt: skip


RING: dict[str, Callable[..., Any]] = {
    "negate": operator.neg, "add": operator.add, "subtract": operator.sub,
    "multiply": operator.mul, "equal": operator.eq,
}  # fmt: skip
"""Functions that bit-vectors and real numbers implement by the operators of their terms."""


@dataclass(frozen=True, eq=False, slots=True)
class Typed:
    """A term of the solver, with its element type in the IR."""

    term: Any
    of: Attribute


def width(of: Attribute) -> int:
    """Return the bit width of an integer type."""
    assert isinstance(of, IntegerType)
    return of.width.data


def is_signed(of: Attribute) -> bool:
    """Whether an integer type is signed."""
    return isinstance(of, IntegerType) and of.signedness.data is not Signedness.UNSIGNED


class Domain:
    """The base class of representations of floats as solver terms; all share those of integers and
    bools.
    """

    is_exact: bool

    def __init__(self) -> None:
        self.numbers: dict[Number, Any] = {}
        self.facts: list[Any] = []
        """Facts about variables and functions, for every proof."""
        self._functions: dict[Any, Any] = {}

    # -- defined by each domain ----------------------------------------------------------------

    def float_sort(self, of: Attribute) -> Any:
        raise NotImplementedError

    def float_constant(self, value: float, of: Attribute) -> Any:
        raise NotImplementedError

    def rounded(self, term: Any, given: Attribute, of: Attribute) -> Any:
        """Convert a float to another float type."""
        raise NotImplementedError

    def of_integer(self, term: Any, given: Attribute, of: Attribute) -> Any:
        """Convert an integer to a float."""
        raise NotImplementedError

    def to_integer(self, term: Any, of: Attribute) -> Any:
        """Convert a float to an integer, towards zero."""
        raise NotImplementedError

    def on_floats(self, function: str, terms: list[Any], of: Attribute) -> Any:
        raise NotImplementedError

    # -- sorts and constants -----------------------------------------------------------------

    def sort(self, of: Attribute) -> Any:
        """Return the solver's sort of an element type."""
        if is_float(of):
            if of not in _FORMATS:
                raise Unproven(f"elements of type {of}")
            return self.float_sort(of)
        if of == i1:
            return z3.BoolSort()
        if isinstance(of, IntegerType):
            return z3.BitVecSort(width(of))
        raise Unproven(f"elements of type {of}")

    def constant(self, value: Any, of: Attribute) -> Any:
        """Return a Python number, or a symbolic one, in an element type."""
        if isinstance(value, Number):
            return self.as_type(value, of)
        if of == i1:
            return z3.BoolVal(bool(value))
        if is_float(of):
            return self.float_constant(float(value), of)
        if isinstance(value, float) and not value.is_integer():
            raise Unproven(f"{value} among integers")
        return z3.BitVecVal(int(value), width(of))

    def function(self, name: str, *sorts: Any) -> Any:
        """Return the uninterpreted function of a name and sorts."""
        key = (name, *map(str, sorts))
        if key not in self._functions:
            self._functions[key] = z3.Function("!".join(key), *sorts)
        return self._functions[key]

    # -- conversions -------------------------------------------------------------------------

    def converted(self, value: Typed, of: Attribute) -> Typed:
        """Convert a value to another element type."""
        given, term = value.of, value.term
        if given == of:
            return value
        if of == i1:
            return Typed(z3.Not(self.is_zero(value)), of)
        if given == i1:
            one, none = (self.constant(number, of) for number in (1, 0))
            return Typed(z3.If(term, one, none), of)
        if is_float(of):
            made = (
                self.rounded(term, given, of)
                if is_float(given)
                else self.of_integer(term, given, of)
            )
            return Typed(made, of)
        if is_float(given):
            return Typed(self.to_integer(term, of), of)
        have, need = width(given), width(of)
        if need < have:
            return Typed(z3.Extract(need - 1, 0, term), of)
        extend: Callable[..., Any] = z3.SignExt if is_signed(given) else z3.ZeroExt
        return Typed(extend(need - have, term) if need > have else term, of)

    def is_zero(self, value: Typed) -> Any:
        """Return the solver's condition that a number is 0 or −0."""
        if is_float(value.of):
            return self.on_floats("equal", [value.term, self.constant(0.0, value.of)], value.of)
        return value.term == self.constant(0, value.of)

    # -- primitives --------------------------------------------------------------------------

    def apply(self, function: str, terms: list[Any], of: Attribute) -> Any:
        """Apply a primitive of `ir/declared/scalar_semantics.py` to terms of one type; comparisons
        give bools.
        """
        if function == "where":
            return z3.If(*terms)
        if of == i1:
            return self._on_truths(function, terms)
        if is_float(of):
            return self.on_floats(function, terms, of)
        return self._on_integers(function, terms, of)

    def _on_truths(self, function: str, terms: list[Any]) -> Any:
        table: dict[str, Callable[..., Any]] = {
            "not_": z3.Not, "invert": z3.Not, "and_": z3.And, "or_": z3.Or, "xor": z3.Xor,
            "equal": operator.eq, "maximum": z3.Or, "minimum": z3.And,
            "multiply": z3.And, "add": z3.Or,
        }  # fmt: skip
        if function not in table:
            raise Unproven(f"{function} of truth values")
        return table[function](*terms)

    def _on_integers(self, function: str, terms: list[Any], of: Attribute) -> Any:
        if function in RING:
            return RING[function](*terms)
        x, *rest = terms
        signed = is_signed(of)
        less: Callable[..., Any] = operator.lt if signed else z3.ULT
        match function, rest:
            case ("absolute", _):
                return z3.If(x < 0, -x, x) if signed else x
            case ("less", [y]):
                return less(x, y)
            case ("less_equal", [y]):
                return z3.Not(less(y, x))
            case ("minimum", [y]):
                return z3.If(less(y, x), y, x)
            case ("maximum", [y]):
                return z3.If(less(x, y), y, x)
            case ("invert", _):
                return ~x
            case ("floor" | "ceil" | "trunc" | "round", _):
                return x
            case _:
                sort = self.sort(of)
                return self.function(f"{function}:{of}", *(sort for _ in terms), sort)(*terms)

    # -- numbers of rules --------------------------------------------------------------------

    def number(self, node: Number) -> Any:
        """Return a number of a rule as a solver term: a float64 or an integer."""
        if node not in self.numbers:
            self.numbers[node] = self._number(node)
        return self.numbers[node]

    def as_type(self, node: Number, of: Attribute) -> Any:
        """Return a number of a rule converted to an element type."""
        return self.converted(Typed(self.number(node), i64 if node.is_int else f64), of).term

    def _number(self, node: Number) -> Any:
        function = node.function
        of = i64 if node.is_int else f64
        if function == "constant":
            return self.constant(node.operands[0], of)
        if function == "variable":
            made = z3.Const(f"${node.operands[0]}", self.sort(of))
            if node.is_int:
                self.facts += [made > -(1 << 31), made < 1 << 31]
            return made
        terms = [self.as_type(n, of) for n in node.operands]
        if function == "float":
            return terms[0]
        if function == "modulo" and node.is_int:
            return terms[0] - terms[1] * z3.If(
                z3.SRem(terms[0], terms[1]) < 0,
                terms[0] / terms[1] - 1,
                terms[0] / terms[1],
            )
        return self.of_number(function, terms, node)

    def of_number(self, function: str, terms: list[Any], node: Number) -> Any:
        """Apply a function to numbers of a rule, whether or not it is a primitive."""
        return self.apply(function, terms, i64 if node.is_int else f64)

    def condition(self, node: Number, answer: bool) -> Any:
        """Return the solver term which states that a comparison of numbers is true, or is false."""
        held = self._asked(node)
        if answer and node.function == "equal":
            for one, other in (node.operands, node.operands[::-1]):
                if other.function == "constant" and other.operands[0] and not one.is_int:
                    return self.number(one) == self.constant(float(other.operands[0]), f64)
        return held if answer else z3.Not(held)

    def _asked(self, node: Number) -> Any:
        if node.function in ("isfinite", "isnan", "isinf", "signbit"):
            (given,) = node.operands
            while given.function == "float":
                (given,) = given.operands
            return self.kind_of_number(node.function, self.number(given), given.is_int)
        one, other = node.operands
        of = i64 if one.is_int and other.is_int and self.is_exact else f64
        terms = [self.as_type(n, of) for n in (one, other)]
        return self.apply(node.function, terms, of)

    def kind_of_number(self, function: str, term: Any, is_int: bool) -> Any:
        raise NotImplementedError


def _smallest() -> Any:
    """Return the largest number that some float type rounds to zero."""
    return z3.FPVal(2.0**-25, z3.Float64())


def is_of_rule(term: Any) -> bool:
    """Whether a term is an arbitrary number of the rule."""
    return z3.is_const(term) and term.decl().name().startswith("$")


def _is_negated(term: Any) -> bool:
    return z3.is_app_of(term, z3.Z3_OP_FPA_NEG)


def _negated(term: Any) -> Any:
    """Return the negative of a float; a product and a quotient have their sign outside, and a
    difference is the sum with the negative, so that equal expressions are one term.
    """
    return (
        term.arg(0)
        if _is_negated(term)
        else z3.simplify(z3.fpNeg(term))
        if z3.is_fp_value(term)
        else z3.fpNeg(term)
    )


def _is_zero(term: Any) -> bool:
    held = z3.simplify(term)
    if z3.is_app_of(held, z3.Z3_OP_ITE):
        return _is_zero(held.arg(1)) and _is_zero(held.arg(2))
    return bool(z3.is_fp_value(held)) and bool(held.isZero())


def place_of(term: Any) -> int:
    """Return the sort key that orders terms."""
    return term.get_id()


class Bits(Domain):
    """The solver domain of IEEE floats, rounded to nearest even after each primitive."""

    is_exact = True

    def __init__(self) -> None:
        super().__init__()
        self.narrow: dict[tuple[int, str], tuple[Any, Any]] = {}

    def float_sort(self, of: Attribute) -> Any:
        return z3.FPSort(*_FORMATS[of])

    def float_constant(self, value: float, of: Attribute) -> Any:
        sort = self.float_sort(of)
        if math.isnan(value):
            return z3.fpNaN(sort)
        if math.isinf(value):
            return z3.fpInfinity(sort, value < 0)
        if value == 0:
            return z3.fpZero(sort, math.copysign(1, value) < 0)
        exact = z3.FPVal(value, z3.Float64())
        return exact if of == f64 else z3.simplify(z3.fpFPToFP(z3.RNE(), exact, sort))

    def rounded(self, term: Any, given: Attribute, of: Attribute) -> Any:
        sort = self.float_sort(of)
        if given == of:
            return term
        if given == f64 and of in (f16, bf16) and not is_of_rule(term):
            return self.rounded(self.rounded(term, f64, f32), f32, of)  # As PyTorch does.
        if z3.is_app_of(term, z3.Z3_OP_ITE):
            parts = [self.rounded(part, given, of) for part in term.children()[1:]]
            return z3.If(term.arg(0), *parts)
        if all(have >= need for have, need in zip(_FORMATS[given], _FORMATS[of], strict=True)):
            is_widened = term.decl().kind() == z3.Z3_OP_FPA_TO_FP and term.num_args() == 2
            if is_widened and term.arg(1).sort() == sort:
                return term.arg(1)  # A conversion and its inverse cancel.
            if given == f64 and is_of_rule(term):
                return self._narrowed(term, of)
        return z3.fpFPToFP(z3.RNE(), term, sort)

    def _narrowed(self, term: Any, of: Attribute) -> Any:
        """Return a number of the rule in a narrower type, by the properties that rounding
        preserves: order, sign, NaN.
        """
        key = (term.get_id(), str(of))
        if key in self.narrow:
            return self.narrow[key][1]
        made = z3.FreshConst(self.float_sort(of))
        self.facts += [
            z3.fpIsNaN(made) == z3.fpIsNaN(term),
            z3.Implies(z3.Not(z3.fpIsNaN(term)), z3.fpIsNegative(made) == z3.fpIsNegative(term)),
            z3.Implies(z3.fpIsZero(term), z3.fpIsZero(made)),
            z3.Implies(z3.fpIsInf(term), z3.fpIsInf(made)),
            z3.Implies(z3.fpGT(z3.fpAbs(term), _smallest()), z3.Not(z3.fpIsZero(made))),
            *(
                z3.Implies(term == self.constant(n, f64), made == self.constant(n, of))
                for n in (-1.0, 1.0)
            ),
        ]
        for (_, other_of), (other, narrow) in self.narrow.items():
            if other_of == str(of):
                self.facts += [
                    z3.Implies(z3.fpLEQ(term, other), z3.fpLEQ(made, narrow)),
                    z3.Implies(z3.fpLEQ(other, term), z3.fpLEQ(narrow, made)),
                ]
        self.narrow[key] = (term, made)
        return made

    def of_integer(self, term: Any, given: Attribute, of: Attribute) -> Any:
        if given == i64 and is_of_rule(term):
            return self.rounded(self._whole(term), f64, of)
        if of in (f16, bf16):
            return self.rounded(self.of_integer(term, given, f32), f32, of)
        make: Callable[..., Any] = z3.fpSignedToFP if is_signed(given) else z3.fpUnsignedToFP
        return make(z3.RNE(), term, self.float_sort(of))

    def _whole(self, term: Any) -> Any:
        """Return an integer of the rule as an exact float64: its order, sign and small values."""
        key = (term.get_id(), "whole")
        if key not in self.narrow:
            made = z3.Const(f"{term.decl().name()}.whole", z3.Float64())
            self.facts += [
                z3.Not(z3.Or(z3.fpIsNaN(made), z3.fpIsInf(made), z3.fpIsSubnormal(made))),
                z3.fpIsNegative(made) == (term < 0),
                *((term == n) == (made == self.constant(float(n), f64)) for n in (-1, 0, 1, 2)),
            ]
            for (_, kind), (other, whole) in self.narrow.items():
                if kind == "whole":
                    self.facts.append((term <= other) == z3.fpLEQ(made, whole))
                    self.facts.append((other <= term) == z3.fpLEQ(whole, made))
            self.narrow[key] = (term, made)
        return self.narrow[key][1]

    def to_integer(self, term: Any, of: Attribute) -> Any:
        make: Callable[..., Any] = z3.fpToSBV if is_signed(of) else z3.fpToUBV
        return make(z3.RTZ(), term, z3.BitVecSort(width(of)))

    def on_floats(self, function: str, terms: list[Any], of: Attribute) -> Any:
        if function == "subtract":
            function, terms = "add", [terms[0], _negated(terms[1])]
        if function in ("multiply", "divide") and any(map(_is_negated, terms)):
            plain = [_negated(term) if _is_negated(term) else term for term in terms]
            made = self.on_floats(function, plain, of)
            return _negated(made) if sum(map(_is_negated, terms)) == 1 else made
        if function in ("add", "multiply"):
            terms = sorted(terms, key=place_of)  # They commute.
        x, *rest = terms
        nearest = z3.RNE()
        one = self.constant(1.0, of)
        match function, rest:
            case ("multiply" | "divide", [y]) if z3.simplify(y).eq(one):
                return x
            case ("multiply", [y]) if z3.simplify(x).eq(one):
                return y
            case ("multiply", [y]) if _is_zero(x) or _is_zero(y):
                return self._nought(x, y)
            case ("negate", _):
                return _negated(x)
            case ("absolute", _):
                return z3.fpAbs(x)
            case ("add", [y]):
                return z3.fpAdd(nearest, x, y)
            case ("multiply", [y]):
                return z3.fpMul(nearest, x, y)
            case ("divide", [y]):
                return z3.fpDiv(nearest, x, y)
            case ("reciprocal", _):
                return z3.fpDiv(nearest, self.constant(1.0, of), x)
            case ("sqrt", _):
                return z3.fpSqrt(nearest, x)
            case ("floor" | "ceil" | "trunc" | "round", _):
                modes = {"floor": z3.RTN, "ceil": z3.RTP, "trunc": z3.RTZ, "round": z3.RNE}
                return z3.fpRoundToIntegral(modes[function](), x)
            case ("is_nan", _):
                return z3.fpIsNaN(x)
            case ("less", [y]):
                return z3.fpLT(x, y)
            case ("less_equal", [y]):
                return z3.fpLEQ(x, y)
            case ("equal", [y]):
                return z3.fpEQ(x, y)
            case ("minimum", [y]):
                return self._extremum(x, y, z3.fpLT(y, x))
            case ("maximum", [y]):
                return self._extremum(x, y, z3.fpLT(x, y))
            case _:
                sort = self.float_sort(of)
                return self.function(f"{function}:{of}", *(sort for _ in terms), sort)(*terms)

    def _nought(self, x: Any, y: Any) -> Any:
        """Return the product of a number and zero: a zero of the right sign, or NaN."""
        sort = x.sort()
        is_nan = z3.Or(z3.fpIsNaN(x), z3.fpIsNaN(y), z3.fpIsInf(x), z3.fpIsInf(y))
        is_below = z3.Xor(z3.fpIsNegative(x), z3.fpIsNegative(y))
        zero = z3.If(is_below, z3.fpZero(sort, True), z3.fpZero(sort, False))
        return z3.If(is_nan, z3.fpNaN(sort), zero)

    def alone(self, x: Any, of: Attribute) -> Any:
        """Return the sum of a single number: 0 for −0 if a kernel starts its sum with 0."""
        sort = self.float_sort(of)
        is_below = self.function(f"alone:{of}", sort, z3.BoolSort())(x)
        zero = z3.If(is_below, z3.fpZero(sort, True), z3.fpZero(sort, False))
        return z3.If(z3.fpIsZero(x), zero, x)

    def _extremum(self, x: Any, y: Any, takes_other: Any) -> Any:
        """Return PyTorch's extremum: NaN if either operand is NaN; of equal numbers the first."""
        return z3.If(z3.fpIsNaN(x), x, z3.If(z3.Or(z3.fpIsNaN(y), takes_other), y, x))

    def of_number(self, function: str, terms: list[Any], node: Number) -> Any:
        if function == "single":
            return self.rounded(self.rounded(terms[0], f64, f32), f32, f64)
        if function == "mantissa":
            bits = z3.fpToIEEEBV(terms[0])
            is_power = z3.Extract(51, 0, bits) == 0
            unknown = z3.FreshConst(z3.Float64())
            half = z3.FPVal(0.5, z3.Float64())
            self.facts += [z3.fpGT(unknown, half), z3.fpLT(unknown, z3.FPVal(1.0, z3.Float64()))]
            size = z3.If(z3.And(z3.fpIsNormal(terms[0]), is_power), half, unknown)
            return z3.If(z3.fpIsNegative(terms[0]), z3.fpNeg(size), size)
        return super().of_number(function, terms, node)

    def kind_of_number(self, function: str, term: Any, is_int: bool) -> Any:
        if is_int:
            return {"isfinite": z3.BoolVal(True), "signbit": term < 0}.get(
                function, z3.BoolVal(False)
            )
        kinds: dict[str, Callable[[Any], Any]] = {
            "isnan": z3.fpIsNaN,
            "isinf": z3.fpIsInf,
            "signbit": z3.fpIsNegative,
        }
        if function == "isfinite":
            return z3.Not(z3.Or(z3.fpIsNaN(term), z3.fpIsInf(term)))
        return kinds[function](term)
