"""Errors that state the fact, the place and the remedy.

Everything that is raised for a user's input derives from `StepwellError`. Its text has one block
for each problem:

    aten.convolution.default: transposed convolution with groups=2 has no xnnpack form
      at model.py:41, node conv_transpose
      help: groups must be 1; leave this op to the portable kernels
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import (
    FileLineColLoc,
    IntAttr,
    LocationAttr,
    NameLoc,
    StringAttr,
    UnknownLoc,
    UnregisteredOp,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from stepwell.ir.identity_cache import once_each


@dataclass(frozen=True)
class Problem:
    """A problem: one line of fact, then its place, then the remedy."""

    fact: str
    where: str | None = None
    help: str | None = None

    def __str__(self) -> str:
        lines = [self.fact]
        if self.where:
            lines.append(f"  at {self.where}")
        if self.help:
            lines.append(f"  help: {self.help}")
        return "\n".join(lines)


class StepwellError(Exception):
    """Base class of all errors that a user's input may cause, with all problems that were found."""

    def __init__(
        self, fact: str | Iterable[Problem], where: str | None = None, help: str | None = None
    ) -> None:
        self.problems: tuple[Problem, ...] = (
            (Problem(fact, where, help),) if isinstance(fact, str) else tuple(fact)
        )
        super().__init__(str(self))

    def __str__(self) -> str:
        return "\n".join(map(str, _once_each(self.problems)))


FEW = 2
"""The number of places of one problem that are stated in full."""


def _once_each(problems: Sequence[Problem]) -> Iterator[Problem]:
    """Yield each problem; what more than a few ops have in common is one problem with a count."""
    groups: dict[tuple[str, str | None], list[Problem]] = {}
    for problem in problems:
        _, colon, reason = problem.fact.partition(": ")
        groups.setdefault((reason if colon else problem.fact, problem.help), []).append(problem)
    for (reason, help), held in groups.items():
        if len(held) <= FEW:
            yield from held
            continue
        ops = list(dict.fromkeys(one.fact.removesuffix(reason) for one in held))
        others = f"{ops[0].removesuffix(': ')} and {counted(len(ops) - 1, 'other')}: "
        places = list(dict.fromkeys(one.where for one in held if one.where))
        more = len(places) - FEW
        more = f"; and {counted(more, 'more place')}" if more > 0 else ""
        fact = f"{others if len(ops) > 1 else ops[0]}{reason} (× {len(held)})"
        yield Problem(fact, "; ".join(places[:FEW]) + more or None, help)


class VerificationError(StepwellError):
    """The IR violates a rule of its level: structure, types, dominance, membership or signature."""


class UnsupportedError(StepwellError):
    """Valid input that a pass does not support; the error lists every such op."""


class ParseFailure(StepwellError):
    """A text or bytes cannot be parsed."""


class InputMismatch(StepwellError):
    """The inputs of a call differ from the program's signature: count, shape, dtype or dim
    order.
    """


class NoEngine(StepwellError):
    """No engine on this machine runs this kind of artifact."""


class ArtifactError(StepwellError):
    """An engine refused or failed to load or run an artifact."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; the name of its class if it has none."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)


@contextmanager
def reported(fact: str, help: str | None = None) -> Generator[None]:
    """Report an exception of foreign code as a `StepwellError`: the fact, then the exception."""
    try:
        yield
    except StepwellError:
        raise
    except Exception as error:
        text = f"{fact}: {type(error).__name__}: {first_line(error)}"
        raise StepwellError(text, help=help) from error


def node_name(location: Attribute) -> str | None:
    """Return the name of the op's node in the model's graph (`conv2d_1`), if its
    location has one.
    """
    return location.desc.data if isinstance(location, NameLoc) else None


def module_path(location: Attribute) -> str | None:
    """Return the module of the op (`blocks.0.mlp`), which is the second name of its location."""
    if isinstance(location, NameLoc) and isinstance(location.location, NameLoc):
        return location.location.desc.data or None
    return None


def source_line(location: Attribute) -> str | None:
    """Format the innermost file location: `model.py:41` or `cell [3], line 7`."""
    while isinstance(location, NameLoc):
        location = location.location
    if isinstance(location, FileLineColLoc):
        name = location.filename.data
        return f"{name}{', line ' if name.startswith('cell [') else ':'}{location.line.data}"
    return None


@once_each
def describe_location(location: Attribute) -> str | None:
    """Format a location: `model.py:41, node conv_transpose, in blocks.0`, without unknown parts."""
    parts: list[str] = []
    if line := source_line(location):
        parts.append(line)
    if name := node_name(location):
        parts.append(f"node {name}")
    if path := module_path(location):
        parts.append(f"in {path}")
    return ", ".join(parts) or None


_DESCRIBED = re.compile(
    r"(?:(?P<file>cell \[[^\]]*\](?=, line )|[^,]+(?=:))(?:, line |:)(?P<line>\d+))?"
    r"(?:(?:^|, )node (?P<node>.*?))?(?:(?:^|, )in (?P<path>[^ ]*))?"
)


def location_of(text: str) -> LocationAttr:
    """Parse a location that `describe_location` formatted; any other text becomes a name."""
    match = _DESCRIBED.fullmatch(text)
    location: LocationAttr = UnknownLoc()
    if match is not None:
        if match["file"]:
            place = StringAttr(match["file"]), IntAttr(int(match["line"])), IntAttr(0)
            location = FileLineColLoc(*place)
        if match["path"]:
            location = NameLoc(StringAttr(match["path"]), location)
        if match["node"] or match["path"]:
            location = NameLoc(StringAttr(match["node"] or ""), location)
    if (describe_location(location) or "") == text:
        return location
    return NameLoc(StringAttr(text), UnknownLoc())


def describe_op(op: Operation) -> str | None:
    """Describe where an op is located: its source line and node name, else the results
    it defines.
    """
    if described := describe_location(op.location):
        return described
    hints = [f"%{result.name_hint}" for result in op.results if result.name_hint]
    return "value " + ", ".join(hints) if hints else None


def describe_value(value: SSAValue) -> str:
    """Describe a value: `%x`, `block argument 2` or `result 0 of aten.add.Tensor`."""
    if value.name_hint:
        return f"%{value.name_hint}"
    if isinstance(value, BlockArgument):
        return f"block argument {value.index}"
    owner = value.owner
    if isinstance(owner, Block):
        return "a block argument"
    results: list[SSAValue] = list(owner.results)
    return f"result {results.index(value)} of {op_name(owner)}"


def op_name(op: Operation) -> str:
    """Return the op's name as printed, also of unregistered ops."""
    name = op.name
    return name if name != UnregisteredOp.name else cast(UnregisteredOp, op).op_name.data


def counted(number: int, what: str) -> str:
    """Return a number with its noun: `1 delegate`, `2,048 bytes`, `3 passes`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}{'e' * what.endswith('s')}s"


def short(number: float, sign: str = "") -> str:
    """Format a number with four decimals, or two digits if it is small; `+`: with its sign."""
    return format(number, f"{sign}{'.2g' if 0 < abs(number) < 0.001 else '.4f'}")


def quoted(name: str) -> str:
    """Put a name in double quotes, shortened in the middle if it has over 120 characters."""
    shown = name if len(name) <= 120 else f"{name[:80]}…{name[-30:]}"
    return '"' + shown.replace('"', '\\"') + '"'
