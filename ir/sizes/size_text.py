"""The parser of sizes: what `str(size)` returns and what torch and sympy print."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import lru_cache

from stepwell.ir.diagnostics import ParseFailure, StepwellError
from stepwell.ir.sizes.size import UNKNOWN, Dim, Size, maximum, minimum, settled

_LONGEST_TEXT = 4096
_LARGEST_POWER = 64


def parse_size(text: str) -> Size:
    """Parse a symbolic size such as `2*s0 + 1`.

    Args:
        text: sums, differences, products, `//`, `%`, powers by a number, `Min`, `Max`, `Mod`,
            `PythonMod`, `FloorDiv` and `CleanDiv` of symbols and integers. A true quotient of
            these, plus or minus integers, is allowed directly inside a rounding, as in the trace of
            `math.ceil((n - 1) / 4 + 1)`.

    Raises:
        ParseFailure: the text is not such an expression, divides by 0, or is too large for a size.
    """
    try:
        return _Parser(text).parse()
    except ParseFailure:
        raise
    except StepwellError as error:
        raise ParseFailure(f"{text[:80]!r}: {error}") from None


@lru_cache(maxsize=65536)
def dim_of(text: str) -> Dim:
    """Parse a dimension as printed in a type or by torch: a number, a size, or `?`."""
    if text == "?":
        return UNKNOWN
    try:
        return settled(parse_size(text))
    except ParseFailure:
        return Size.computed(text)


_CALL = re.compile(r"\b(?!(?:Min|Max|Mod|PythonMod|FloorDiv|CleanDiv)\()[A-Za-z_]\w*\(")
_ARGUMENTS = re.compile(r"[\w\s+\-*/%().,<>=!&|~]+")
_SYMBOLIC_POWER = re.compile(r"\b\d+\*\*(?=[A-Za-z_(])")


@lru_cache(maxsize=4096)
def why_no_size(text: str) -> str | None:
    """Return why a text is not a valid size in a type, or None.

    Functions that only torch evaluates (`TruncToInt(IntTrueDiv(s0, 3))`), and a number to the power
    of a symbol, count as symbols here, because `Size` does not support that arithmetic.
    """
    if len(text) > _LONGEST_TEXT:
        return f"a size has {len(text)} characters; {_LONGEST_TEXT} is the limit"
    while call := _CALL.search(text):
        end = _closing(text, call.end())
        inside = text[call.end() : end]
        if end < 0 or "**" in inside or not _ARGUMENTS.fullmatch(inside):
            return f"{text[:80]!r} is not the expression of a size"
        text = f"{text[: call.start()]}computed{text[end + 1 :]}"
    text = _SYMBOLIC_POWER.sub("power*", text)
    try:
        parse_size(text)
    except ParseFailure as error:
        return error.problems[0].fact
    return None


def _closing(text: str, at: int) -> int:
    """Return the index of the bracket that closes the one before `at`; -1 if there is none."""
    depth = 1
    for index in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if depth == 0:
            return index
    return -1


_TOKEN = re.compile(r"\s*(?:(\d+(?:\.0+)?)(?![.\w])|([A-Za-z_]\w*)|(\*\*|//|[-+*%(),]))")
_FUNCTIONS: dict[str, Callable[..., Size]] = {
    "Min": minimum,
    "Max": maximum,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
}
_ROUNDED: dict[str, Callable[[Size, Size], Size]] = {
    "FloorToInt": operator.floordiv,
    "CeilToInt": lambda one, other: -(-one // other),
}
"""The functions that round a true quotient, as integer division. No size is large enough for the
division in floats to round past an integer.
"""


class _Parser:
    """A recursive-descent parser; every error names the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _LONGEST_TEXT:
            raise ParseFailure(f"a size has {len(text)} characters; {_LONGEST_TEXT} is the limit")
        self.tokens: list[str] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.failure()
            self.tokens.append(match[0].strip())
            at = match.end()
        self.at = 0
        self.depth = 0

    def failure(self) -> ParseFailure:
        return ParseFailure(
            f"{self.text[:80]!r} is not the expression of a size",
            help="a size consists of symbols, integers, + - * // % **, Min, Max and Mod",
        )

    def parse(self) -> Size:
        found = self.sum()
        if self.at != len(self.tokens):
            raise self.failure()
        return found

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, *wanted: str) -> str | None:
        token = self.peek()
        if token not in wanted:
            return None
        self.at += 1
        return token

    def sum(self) -> Size:
        self.depth += 1
        if self.depth > 100:
            raise self.failure()
        found = self.term()
        while sign := self.take("+", "-"):
            found = found + self.term() if sign == "+" else found - self.term()
        self.depth -= 1
        return found

    def term(self) -> Size:
        found = self.unary()
        while sign := self.take("*", "//", "%"):
            right = self.unary()
            if sign == "*":
                found = self.checked(found * right)
            elif not right.terms:
                raise ParseFailure(f"{self.text[:80]!r} divides a size by 0")
            else:
                found = found // right if sign == "//" else found % right
        return found

    def unary(self) -> Size:
        negative = False
        while self.take("-"):
            negative = not negative
        found = self.power()
        return -found if negative else found

    def power(self) -> Size:
        found = self.primary()
        if not self.take("**"):
            return found
        exponent = self.unary().number
        if exponent is None or not 0 <= exponent <= _LARGEST_POWER:
            raise ParseFailure(
                f"{self.text[:80]!r} has a power that is not an integer up to {_LARGEST_POWER}"
            )
        result = Size.of(1)
        for _ in range(exponent):
            result = self.checked(result * found)
        return result

    def primary(self) -> Size:
        token = self.peek()
        self.at += 1
        if token.isdigit():
            if len(token) > 19:
                raise ParseFailure(f"{self.text[:80]!r} has a number beyond any size")
            return Size.of(int(token))
        if token == "(":
            found = self.sum()
            if not self.take(")"):
                raise self.failure()
            return found
        if not token or not (token[0].isalpha() or token[0] == "_"):
            raise self.failure()
        return self.call(token) if self.peek() == "(" else Size.symbol(token)

    def call(self, name: str) -> Size:
        if name in _ROUNDED:
            return _ROUNDED[name](*self.fraction())
        function = _FUNCTIONS.get(name)
        arguments = self.arguments()
        if function is None:
            raise self.failure()
        return function(*(arguments if name in ("Min", "Max") else self.divided(arguments)))

    def arguments(self) -> list[Size]:
        self.at += 1
        arguments = [self.sum()]
        while self.take(","):
            arguments.append(self.sum())
        if not self.take(")"):
            raise self.failure()
        return arguments

    def divided(self, arguments: list[Size]) -> tuple[Size, Size]:
        if len(arguments) != 2:
            raise self.failure()
        if not arguments[1].terms:
            raise ParseFailure(f"{self.text[:80]!r} divides a size by 0")
        return arguments[0], arguments[1]

    def fraction(self) -> tuple[Size, Size]:
        """Parse a true quotient plus integers, in brackets: `((IntTrueDiv(n, 4)) + 1.0)`."""
        self.at += 1
        if self.take("IntTrueDiv"):
            one, other = self.divided(self.arguments())
        elif self.peek() == "(":
            one, other = self.fraction()
        else:
            raise self.failure()
        while sign := self.take("+", "-"):
            whole = int(float(self.peek())) if self.peek()[:1].isdigit() else None
            if whole is None:
                raise self.failure()
            self.at += 1
            one = one + other * whole if sign == "+" else one - other * whole
        if not self.take(")"):
            raise self.failure()
        return one, other

    def checked(self, size: Size) -> Size:
        """Check that the coefficients of a product are below 2¹²⁷."""
        if any(abs(c) >= 2**127 for _, c in size.terms):
            raise ParseFailure(f"{self.text[:80]!r} has a number beyond any size")
        return size
