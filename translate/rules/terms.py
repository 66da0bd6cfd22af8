"""The arguments of a rule's lines: values, holes, numbers, words, lists, computed terms."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.op import STATED
from stepwell.ir import dtypes
from stepwell.ir.diagnostics import ParseFailure


@dataclass(frozen=True)
class ValueName:
    """A value in a rule, `%x`."""

    name: str


@dataclass(frozen=True)
class Hole:
    """A hole in a rule: `$c`, or `$?c` if its number may be known only at run time."""

    name: str
    is_late: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Computed:
    """An argument that is computed: `function(arguments)`."""

    function: str
    arguments: tuple[Term, ...]


Term: TypeAlias = (
    "ValueName | Hole | Computed | list[Any] | Attribute | int | float | bool | str | None"
)
"""An argument: a list holds terms, an attribute is an element type."""


_TOKEN = re.compile(
    r"""\s*(?:(?P<value>%\w+)|(?P<hole>\$\??\w+)|(?P<number>-?(?:\d+\.?\d*(?:e[+-]?\d+)?|inf|nan)\b)"""
    r"""|(?P<string>"[^"]*"|'[^']*')|(?P<word>[A-Za-z_]\w*)|(?P<sign>[][(){},=]))"""
)
_WORDS = {"none": None, "true": True, "false": False}


class Terms:
    """Parses the arguments of an op or a function, and finds where they end."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.is_open = False

    def one(self) -> Term:
        """Return the term, if it is the only one."""
        found = self.term()
        if self.rest():
            raise ParseFailure(f"unexpected {self.rest()!r} after it")
        return found

    def rest(self) -> str:
        """Return the text that is not parsed yet."""
        return self.text[self.at :].strip()

    def take(self, sign: str) -> bool:
        """Consume a sign, if it is next."""
        match = _TOKEN.match(self.text, self.at)
        if match is None or match["sign"] != sign:
            return False
        self.at = match.end()
        return True

    def until(self, closing: str) -> Iterator[tuple[str | None, Term]]:
        """Yield (name or None, term) of each argument up to the closing bracket, and consume it."""
        while not self.take(closing):
            if rest := re.compile(r"\s*…,?").match(self.text, self.at):
                self.at, self.is_open = rest.end(), True
                continue
            name = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*").match(self.text, self.at)
            if name:
                self.at = name.end()
            yield (name[1] if name else None), self.term()
            self.take(",")

    def term(self) -> Term:
        """Parse the next term of a rule's text."""
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise ParseFailure(f"{self.rest()!r} is no argument")
        self.at = match.end()
        if match["value"]:
            return ValueName(match["value"][1:])
        if match["hole"]:
            return Hole(match["hole"].lstrip("$?"), is_late=match["hole"][1] == "?")
        if match["number"]:
            text = match["number"]
            return float(text) if text.lstrip("-") in ("inf", "nan") else ast.literal_eval(text)
        if match["string"]:
            return match["string"][1:-1]
        if match["sign"] == "[":
            return [term for _, term in self.until("]")]
        word = match["word"]
        if word in _WORDS:
            return _WORDS[word]
        if isinstance(held := getattr(dtypes, word or "", None), Attribute):
            return held
        if word and self.take("("):
            return Computed(word, tuple(term for _, term in self.until(")")))
        raise ParseFailure(f"{match[0].strip()!r} is no argument")


def at_run_time(value: Any) -> bool:
    """Whether an argument, or a number in it, is known only at run time."""
    if isinstance(value, list):
        return any(map(at_run_time, cast("list[Any]", value)))
    return type(value) not in STATED and isinstance(value, SSAValue)


def equal(one: Any, other: Any) -> bool:
    """Whether two arguments are equal: 2 is 2.0, 0.0 is not -0.0, true is not 1, NaN is NaN."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        signs = math.copysign(1, one) == math.copysign(1, other)
        return (one == other and signs) or (one != one and other != other)
    if isinstance(one, list) and isinstance(other, list):
        ours, theirs = cast("list[Any]", one), cast("list[Any]", other)
        return len(ours) == len(theirs) and all(map(equal, ours, theirs))
    return one is other if isinstance(one, SSAValue) else bool(one == other)
