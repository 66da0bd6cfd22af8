"""Errors that say what is wrong, where, and what to do about it.

Everything raised for a user's input derives from `StepwellError` and reads, one block a problem:

    aten.convolution.default: transposed convolution with groups=2 has no xnnpack form
      at model.py:41, node conv_transpose
      help: groups must be 1; leave this op to the portable kernels
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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
    """One fault: a line of fact, then where it is, then the remedy."""

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
    """Base of every error raised for a user's input. Holds all the problems found at once."""

    def __init__(
        self, fact: str | Iterable[Problem], where: str | None = None, help: str | None = None
    ) -> None:
        self.problems: tuple[Problem, ...] = (
            (Problem(fact, where, help),) if isinstance(fact, str) else tuple(fact)
        )
        super().__init__(str(self))

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class VerificationError(StepwellError):
    """The IR breaks a rule of its level: structure, types, dominance, membership or signature."""


class UnsupportedError(StepwellError):
    """Valid input that this step has no rule for; lists every such op."""


class ParseFailure(StepwellError):
    """Text or bytes that do not parse."""


class InputMismatch(StepwellError):
    """Inputs given to a program differ from its signature: count, shape, dtype or dim order."""


class NoEngine(StepwellError):
    """Nothing on this machine runs such an artifact."""


class ArtifactError(StepwellError):
    """An engine refused or failed to load or run an artifact."""


def node_name(location: Attribute) -> str | None:
    """The name the op had in the model's graph (`conv2d_1`), if its location carries one."""
    return location.desc.data if isinstance(location, NameLoc) else None


def module_path(location: Attribute) -> str | None:
    """The module the op came from (`blocks.0.mlp`), the second name of a location."""
    if isinstance(location, NameLoc) and isinstance(location.location, NameLoc):
        return location.location.desc.data or None
    return None


def source_line(location: Attribute) -> str | None:
    """`model.py:41` or `cell [3], line 7`, from the innermost file location."""
    while isinstance(location, NameLoc):
        location = location.location
    if isinstance(location, FileLineColLoc):
        name = location.filename.data
        return f"{name}{', line ' if name.startswith('cell [') else ':'}{location.line.data}"
    return None


@once_each
def describe_location(location: Attribute) -> str | None:
    """`model.py:41, node conv_transpose, in blocks.0`, with the parts that are known."""
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
    """The location that `describe_location` described so; any other text is a name."""
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
    """Where an op stands: its source line and node name, else the results it defines."""
    if described := describe_location(op.location):
        return described
    hints = [f"%{result.name_hint}" for result in op.results if result.name_hint]
    return "value " + ", ".join(hints) if hints else None


def describe_value(value: SSAValue) -> str:
    """`%x`, `block argument 2` or `result 0 of aten.add.Tensor`."""
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
    """The op's name as printed, for unregistered ops too."""
    name = op.name
    return name if name != UnregisteredOp.name else cast(UnregisteredOp, op).op_name.data


def quoted(name: str) -> str:
    """A name in double quotes, shortened in the middle when it is very long."""
    shown = name if len(name) <= 120 else f"{name[:80]}…{name[-30:]}"
    return '"' + shown.replace('"', '\\"') + '"'
