"""Options that a caller may set, each declared once with its values, default and meaning.

    BIAS_FORM = Option("bias_form", ("bias", "both"), None, "where a bias is added", at=(PIPELINE,))

A target has a tuple of options. A function that accepts options calls `chosen`. No other code reads
the caller's values, so that an undeclared name or value is the same error everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from stepwell.ir.choices import Choices
from stepwell.ir.diagnostics import Problem, StepwellError

OptionValue = bool | int | float | str | PathLike[str] | Mapping[Any, Any] | None
"""The types that the value of an option may have."""

PIPELINE = "pipeline"
"""Read when the target's own pipeline is built; has no effect on a given pipeline."""
STEPS = "steps"
"""Read by passes while they run (`program.context.options`), in any pipeline."""


@dataclass(frozen=True)
class ByName:
    """The kind of an option whose value is one word, or a mapping from names (of ports, layers, …)
    to words.
    """

    words: tuple[str, ...]


@dataclass(frozen=True)
class Ranges:
    """The kind of an option with the range of each input, by name or position: `{"ids": (0,
    999)}`.
    """

    def take(self, value: Any) -> Mapping[str | int, tuple[float, float]] | None:
        """Return the ranges as pairs (least, largest) by input, or None for an invalid value."""
        if not isinstance(value, Mapping):
            return None
        taken: dict[str | int, tuple[float, float]] = {}
        for name, ends in cast("Mapping[Any, Any]", value).items():
            if type(name) not in (str, int) or not isinstance(ends, tuple | list):
                return None
            pair = list(cast("Sequence[Any]", ends))
            if len(pair) != 2 or not all(
                type(end) in (int, float) and isfinite(end) for end in pair
            ):
                return None
            low, high = pair
            if low > high:
                return None
            taken[name] = (low, high)
        return taken

    def read(self, text: str) -> dict[str | int, list[float]] | None:
        """Parse `ids:0..999,mask:0..1` to a mapping, or return None for an invalid text."""
        pairs = [pair.rpartition(":") for pair in text.split(",")]
        try:
            return {
                _number(name.strip(), name.strip()): [_number(end) for end in ends.split("..")]
                for name, _, ends in pairs
            }
        except ValueError:
            return None


def _number(text: str, otherwise: Any = None) -> Any:
    """Parse an integer or a float; return the text of anything else."""
    whole = text.removeprefix("-").isdecimal()
    return int(text) if whole else float(text) if otherwise is None else otherwise


Kind = (
    tuple[str, ...]
    | ByName
    | Ranges
    | Choices
    | range
    | type[bool]
    | type[int]
    | type[float]
    | type[str]
    | type[Path]
)


@dataclass(frozen=True)
class Option:
    """A named option of a rewrite, with its type and default.

    Attributes:
        name: the option's name in Python; on the command line `-O name=value`.
        kind: the allowed words (a tuple), words by name (`ByName`), ranges of inputs (`Ranges`), a
            table of choices (`Choices`), a range of integers, or `bool`, `int`, `float`, `str`,
            `Path`.
        default: the value if the option is not set; None means that another rule decides (see
            `meaning`).
        meaning: a phrase for the reader, without a full stop.
        at: where the option is read: `PIPELINE`, `STEPS`, or the kinds of artifact (`"pte"`) to
            whose emitters it is passed.
    """

    name: str
    kind: Kind
    default: Any
    meaning: str
    at: tuple[str, ...] = (STEPS,)

    @property
    def values(self) -> str:
        """Describe the allowed values in words."""
        kind = self.kind
        if isinstance(kind, tuple):
            return ", ".join(repr(word) for word in kind)
        if isinstance(kind, ByName):
            return f"{', '.join(map(repr, kind.words))} for all, or a mapping from names to these"
        if isinstance(kind, Ranges):
            return "a mapping from names or positions to (least, largest), two finite numbers"
        if isinstance(kind, Choices):
            return "a table of choices, or its file"
        if isinstance(kind, range):
            return f"an integer from {kind.start} to {kind.stop - 1}"
        return {
            bool: "True or False",
            int: "an integer",
            float: "a number",
            str: "a string",
            Path: "a path",
        }[kind]

    def take(self, value: Any) -> Any:
        """Convert and validate a value.

        Raises:
            StepwellError: the value is none of `values`.
        """
        if value is None and self.default is None:
            return None
        kind = self.kind
        if isinstance(kind, tuple):
            if isinstance(value, str) and value in kind:
                return str(value)
        elif isinstance(kind, ByName):
            if isinstance(value, str) and value in kind.words:
                return str(value)
            if isinstance(value, Mapping):
                named = cast("Mapping[Any, Any]", value)
                if all(isinstance(n, str) and w in kind.words for n, w in named.items()):
                    return MappingProxyType(dict(named))
        elif isinstance(kind, Ranges | Choices):
            taken: Mapping[Any, Any] | None = kind.take(value)
            if taken is not None:
                return MappingProxyType(taken)
        elif isinstance(kind, range):
            if isinstance(value, int) and not isinstance(value, bool) and value in kind:
                return value
        elif kind is Path:
            if isinstance(value, str | PathLike):
                return Path(cast(str | PathLike[str], value))
        elif kind is float and type(value) is int:
            return float(value)
        elif type(value) is kind:
            return value
        raise self._refusal(value)

    def read(self, text: str) -> Any:
        """Parse a value from the command line.

        Raises:
            StepwellError: the value is none of `values`.
        """
        kind = self.kind
        if kind is bool:
            said = {"true": True, "false": False}.get(text.lower())
            if said is None:
                raise self._refusal(text)
            return said
        if isinstance(kind, Ranges):
            return self.take(kind.read(text) or text)
        if isinstance(kind, ByName) and ":" in text:
            pairs = [pair.rpartition(":") for pair in text.split(",")]
            return self.take({name.strip(): word.strip() for name, _, word in pairs})
        try:
            if isinstance(kind, range) or kind is int:
                return self.take(int(text))
            if kind is float:
                return float(text)
        except ValueError:
            raise self._refusal(text) from None
        return self.take(text)

    def _refusal(self, value: Any) -> StepwellError:
        kind = self.kind
        words = kind if isinstance(kind, tuple) else kind.words if isinstance(kind, ByName) else ()
        near = nearest(value, words) if isinstance(value, str) else ""
        fact = f"option {self.name} cannot be {value!r}"
        return StepwellError(fact, help=f"{near}allowed: {self.values}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `did you mean 'x'? `, or an empty string if no known name is similar."""
    matches = get_close_matches(name, list(known), 1)
    return f"did you mean {matches[0]!r}? " if matches else ""


def chosen(options: Sequence[Option], given: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """Validate the options that were passed, and report all errors at once.

    Args:
        options: the declared options.
        given: the values by name, as the caller wrote them.
        whose: the owner of the options, for the error (`target 'xnnpack'`).

    Raises:
        StepwellError: a name is not declared, or a value is not allowed.
    """
    known = {option.name: option for option in options}
    taken: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, value in given.items():
        if name not in known:
            problems.append(_unknown(name, known, whose))
            continue
        try:
            taken[name] = known[name].take(value)
        except StepwellError as error:
            problems += error.problems
    if problems:
        raise StepwellError(problems)
    return taken


def read_options(options: Sequence[Option], texts: Iterable[str], whose: str) -> dict[str, Any]:
    """Parse `name=value` texts of a command line.

    Raises:
        StepwellError: as `chosen`, and for a text without a value or a repeated name.
    """
    known = {option.name: option for option in options}
    taken: dict[str, Any] = {}
    problems: list[Problem] = []
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        try:
            if name not in known:
                problems.append(_unknown(name, known, whose))
            elif not equals:
                problems.append(Problem(f"option {name} has no value", None, f"-O {name}=…"))
            elif name in taken:
                problems.append(Problem(f"option {name} is repeated"))
            else:
                taken[name] = known[name].read(value.strip())
        except StepwellError as error:
            problems += error.problems
    if problems:
        raise StepwellError(problems)
    return taken


def _unknown(name: str, known: Mapping[str, Option], whose: str) -> Problem:
    listed = "its options are " + ", ".join(known) if known else "it has none"
    return Problem(f"{whose} has no option {name!r}", None, nearest(name, known) + listed)
