"""Scalar semantics of ops (`@means`) in MLIR's `arith` and `math`.

Floats are computed in float32, or in float64 if an operand has it; halves are rounded once, as in
PyTorch's kernels. Integers wrap in the type of the result.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import IntegerType, Signedness
from xdsl.ir import Attribute

from stepwell.ir.declared.scalar_semantics import Scalar, Term
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.dtypes import bf16, f16, f32, f64, i1, i64

FLOATS = (bf16, f16, f32, f64)
_PACKED: Mapping[Attribute, str] = {f32: "<f", f64: "<d"}
UNARY = {
    "absolute": "absf",
    "exp": "exp",
    "expm1": "expm1",
    "log": "log",
    "log1p": "log1p",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "tanh": "tanh",
    "erf": "erf",
    "atan": "atan",
    "asin": "asin",
    "acos": "acos",
    "sinh": "sinh",
    "cosh": "cosh",
    "floor": "floor",
    "ceil": "ceil",
    "round": "roundeven",
    "trunc": "trunc",
}
"""Float functions of `math`."""
OF_FLOATS = {
    "add": "addf",
    "subtract": "subf",
    "multiply": "mulf",
    "divide": "divf",
    "maximum": "maximumf",
    "minimum": "minimumf",
}
OF_INTEGERS = {
    "add": "addi",
    "subtract": "subi",
    "multiply": "muli",
    "maximum": "maxsi",
    "minimum": "minsi",
    "and_": "andi",
    "or_": "ori",
    "xor": "xori",
    "quotient": "floordivsi",
}
COMPARED = {"less": ("olt", "slt"), "less_equal": ("ole", "sle"), "equal": ("oeq", "eq")}
WHOLE = frozenset("floor ceil round trunc".split())
"""Functions that are the identity on integers."""


@dataclass(frozen=True)
class BodyValue:
    """A number in a body: its name and its type."""

    name: str
    type: Attribute

    @property
    def is_float(self) -> bool:
        """Whether the value is a float."""
        return self.type in FLOATS


def number_text(value: float, type_: Attribute) -> str:
    """Return a number in MLIR's syntax, exactly."""
    if type_ == i1:
        return "true" if value else "false"
    if type_ not in FLOATS:
        return str(int(value))
    if value - value == 0:
        return f"{value:.17e}"
    packed = struct.pack(_PACKED[type_], value)
    return f"0x{int.from_bytes(packed, 'little'):0{2 * len(packed)}X}"


def computed_type(types: list[Attribute], result: Attribute) -> Attribute:
    """Return the float or integer type in which an op is computed."""
    if any(type_ in FLOATS for type_ in (*types, result)):
        return f64 if f64 in (*types, result) else f32
    if result != i1:
        return result
    return max(types, key=lambda type_: _width(type_), default=i64)


@dataclass
class Body:
    """Writes the lines of a region from terms.

    Attributes:
        type: the type in which an op is computed.
        fresh: returns an unused name.
        leaf: returns the value of an element or of a reduction.
    """

    type: Attribute
    fresh: Callable[[], str]
    leaf: Mapping[Term, BodyValue]
    lines: list[str] = field(default_factory=list[str])
    made: dict[Term, BodyValue] = field(default_factory=dict[Term, BodyValue])

    def line(self, text: str, type_: Attribute) -> BodyValue:
        """Write an op with one result."""
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        return BodyValue(name, type_)

    def number(self, value: float, type_: Attribute) -> BodyValue:
        """Write a constant number."""
        return self.line(f"arith.constant {constant(value, type_)}", type_)

    def as_type(self, x: BodyValue, to: Attribute) -> BodyValue:
        """Convert a number to another type."""
        if x.type == to:
            return x
        for type_ in (x.type, to):
            if type_ not in FLOATS and not _is_signless(type_):
                raise UnsupportedError(f"arith does not compute with {type_}")
        if x.is_float and to in FLOATS:
            if _bits(x.type) == _bits(to) == 16:
                return self.as_type(self.as_type(x, f32), to)
            word = "extf" if _bits(to) > _bits(x.type) else "truncf"
        elif x.is_float and to == i1:
            zero = self.number(0.0, x.type)
            return self.line(f"arith.cmpf une, {x.name}, {zero.name} : {x.type}", i1)
        elif x.is_float:
            word = "fptosi"
        elif to in FLOATS:
            word = "uitofp" if x.type == i1 else "sitofp"
        elif to == i1:
            zero = self.number(0, x.type)
            return self.line(f"arith.cmpi ne, {x.name}, {zero.name} : {x.type}", i1)
        elif _width(to) > _width(x.type):
            word = "extui" if x.type == i1 else "extsi"
        else:
            word = "trunci"
        return self.line(f"arith.{word} {x.name} : {x.type} to {to}", to)

    def value(self, term: Scalar) -> BodyValue:
        """Return a term's value; a number has the type in which the op is computed."""
        if not isinstance(term, Term):
            is_whole = isinstance(term, int) or self.type in FLOATS
            return self.number(term, self.type if is_whole else f32)
        if term not in self.made:
            self.made[term] = self.wide(self.leaf[term] if term in self.leaf else self.apply(term))
        return self.made[term]

    def wide(self, x: BodyValue) -> BodyValue:
        """Convert a half-precision value to the float type of the computation."""
        return self.as_type(x, self.type) if x.type in (f16, bf16) else x

    def alike(self, *terms: Scalar) -> list[BodyValue]:
        """Return values of one type, that of the terms; numbers are converted to it."""
        known = {term: self.value(term) for term in terms if isinstance(term, Term)}
        types = [x.type for x in known.values()] or [self.type]
        to = next((t for t in (f64, f32) if t in types), max(types, key=_width))
        if to not in FLOATS and any(isinstance(term, float) for term in terms):
            to = self.type if self.type in FLOATS else f32
        return [
            self.as_type(known[t], to) if isinstance(t, Term) else self.number(t, to) for t in terms
        ]

    def apply(self, term: Term) -> BodyValue:
        """Write the application of a primitive.

        Raises:
            UnsupportedError: neither dialect has the primitive.
        """
        word, operands = term.function, term.operands
        if word == "negate" and not isinstance(operands[0], Term):
            return self.value(-operands[0])
        if word == "cast" and term.to is not None:
            return self.wide(self.as_type(self.value(operands[0]), term.to))
        if word == "where":
            condition = self.as_type(self.value(operands[0]), i1)
            x, y = self.alike(*operands[1:])
            text = f"arith.select {condition.name}, {x.name}, {y.name} : {x.type}"
            return self.line(text, x.type)
        values = self.alike(*operands)
        x = values[0]
        if word in ("and_", "or_", "xor", "not_") and x.is_float:
            values = [self.as_type(one, i1) for one in values]
            x = values[0]
        if word in COMPARED:
            if x.type == i1:
                values = [self.as_type(one, IntegerType(8)) for one in values]
            return self._compared(word, *values)
        return self.of_one(word, x) if len(values) == 1 else self.of_two(word, *values)

    def of_one(self, word: str, x: BodyValue) -> BodyValue:
        """Write a function of one argument."""
        if word == "is_nan":
            if not x.is_float:
                return self.number(0, i1)
            return self.line(f"arith.cmpf uno, {x.name}, {x.name} : {x.type}", i1)
        if word in ("not_", "invert"):
            x = self.as_type(x, i1) if word == "not_" else x
            return self.of_two("xor", x, self.number(1 if x.type == i1 else -1, x.type))
        if not x.is_float:
            if word in WHOLE:
                return x
            if word == "negate":
                return self.of_two("subtract", self.number(0, x.type), x)
            if word == "absolute":
                return self.line(f"math.absi {x.name} : {x.type}", x.type)
            if word != "sign":
                x = self.as_type(x, self.type if self.type in FLOATS else f32)
        if word == "negate":
            return self.line(f"arith.negf {x.name} : {x.type}", x.type)
        if word == "reciprocal":
            return self.of_two("divide", self.number(1.0, x.type), x)
        if word == "sign":
            zero, one, less = (self.number(n, x.type) for n in (0, 1, -1))
            signs = [self._compared("less", a, b) for a, b in ((zero, x), (x, zero))]
            below = self.line(
                f"arith.select {signs[1].name}, {less.name}, {zero.name} : {x.type}", x.type
            )
            text = f"arith.select {signs[0].name}, {one.name}, {below.name} : {x.type}"
            return self.line(text, x.type)
        if word not in UNARY:
            raise UnsupportedError(f"neither arith nor math has {word!r}")
        return self.line(f"math.{UNARY[word]} {x.name} : {x.type}", x.type)

    def _compared(self, word: str, x: BodyValue, y: BodyValue) -> BodyValue:
        of_floats, of_integers = COMPARED[word]
        kind = f"cmpf {of_floats}" if x.is_float else f"cmpi {of_integers}"
        return self.line(f"arith.{kind}, {x.name}, {y.name} : {x.type}", i1)

    def of_two(self, word: str, x: BodyValue, y: BodyValue) -> BodyValue:
        """Write a function of two arguments of one type."""
        if word == "divide" and not x.is_float:
            to = self.type if self.type in FLOATS else f32
            x, y = self.as_type(x, to), self.as_type(y, to)
        if word == "modulo" and x.type != i1:
            return self.modulo(x, y)
        if word == "power" and x.is_float:
            return self.line(f"math.powf {x.name}, {y.name} : {x.type}", x.type)
        table = OF_FLOATS if x.is_float else OF_INTEGERS
        if x.type == i1 and word in ("maximum", "minimum", "add", "multiply"):
            word = "or_" if word in ("maximum", "add") else "and_"
        if word not in table:
            raise UnsupportedError(f"neither arith nor math has {word!r} of {x.type}")
        return self.line(f"arith.{table[word]} {x.name}, {y.name} : {x.type}", x.type)

    def modulo(self, x: BodyValue, y: BodyValue) -> BodyValue:
        """Write the remainder with the divisor's sign."""
        kind = "remf" if x.is_float else "remsi"
        rest = self.line(f"arith.{kind} {x.name}, {y.name} : {x.type}", x.type)
        zero = self.number(0, x.type)
        is_rest = "cmpf une" if x.is_float else "cmpi ne"
        some = self.line(f"arith.{is_rest}, {rest.name}, {zero.name} : {x.type}", i1)
        signs = [self._compared("less", one, zero) for one in (rest, y)]
        differ = self.line(f"arith.xori {signs[0].name}, {signs[1].name} : i1", i1)
        turns = self.line(f"arith.andi {some.name}, {differ.name} : i1", i1)
        turned = self.of_two("add", rest, y)
        text = f"arith.select {turns.name}, {turned.name}, {rest.name} : {x.type}"
        return self.line(text, x.type)


def constant(value: float, type_: Attribute) -> str:
    """Return the operand of `arith.constant`."""
    text = number_text(value, type_)
    return text if type_ == i1 else f"{text} : {type_}"


def _bits(type_: Attribute) -> int:
    widths: Mapping[Attribute, int] = {bf16: 16, f16: 16, f32: 32, f64: 64}
    return widths[type_]


def _width(type_: Attribute) -> int:
    if isinstance(type_, IntegerType):
        return type_.width.data
    return 100 + _bits(type_)


def _is_signless(type_: Attribute) -> bool:
    return isinstance(type_, IntegerType) and type_.signedness.data is Signedness.SIGNLESS
