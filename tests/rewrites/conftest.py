"""What tests of rewrites share as fixtures; `tests/notation` has the notation and the runs."""

import re
from types import ModuleType
from typing import Any, Protocol

import pytest
import torch
from rewrite_runs import Applied, Given, applied, inputs_of, program_of, queried
from short_ir import long_types

from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Rewrite


class Apply(Protocol):
    def __call__(self, text: str, *steps: Given, inputs: Any = None) -> Applied: ...


@pytest.fixture
def apply() -> Apply:
    """Run rewrites together on a text; their result is interpreted and compared."""
    return applied


def assert_refused(count: int, reasons: list[str], reason: str) -> None:
    """Nothing is applied, and this reason (or none) is on record."""
    is_stated = any(reason in held for held in reasons) if reason else not reasons
    found = f"applied {count} times; refused: {' | '.join(reasons) or 'nothing'}"
    assert count == 0 and is_stated, f"not refused: {reason or 'no reason'}: {found}"


class Refused(Protocol):
    def __call__(self, text: str, rewrite: Rewrite[Any] | ModuleType, reason: str = "") -> None: ...


@pytest.fixture
def refused() -> Refused:
    """A near miss: the rewrite leaves the text alone, with this reason (or none) on record.

    A file of lowerings stands for all of them.
    """

    def run(text: str, rewrite: Rewrite[Any] | ModuleType, reason: str = "") -> None:
        done = applied(text, rewrite)
        assert_refused(done.count, done.reasons, reason)

    return run


class Asked(Protocol):
    def __call__(
        self, text: str, rewrite: Rewrite[Any] | ModuleType, target: str = "", **options: str
    ) -> tuple[int, list[str]]: ...


@pytest.fixture
def asked() -> Asked:
    """How often a rewrite applies in a lowering to a target with options, and why it does not."""
    return queried


@pytest.fixture
def left() -> Refused:
    """A near miss that is only looked at: as `refused`, for what torch does not compute, or slowly."""

    def run(text: str, rewrite: Rewrite[Any] | ModuleType, reason: str = "") -> None:
        assert_refused(*queried(text, rewrite), reason)

    return run


def pytest_make_parametrize_id(val: Any, argname: str) -> str | None:
    """A near miss `(rewrite, lines, reason)` by the op of its last line and the reason."""
    if argname != "near_miss":
        return None
    _, lines, reason = val
    op = lines[-1].partition(" = ")[2].partition("(")[0]
    return f"{op}, {reason or 'no business of it'}"


@pytest.fixture
def programs() -> Any:
    """Makes a program of a text, with random weights, and random inputs of it."""

    def make(text: str) -> tuple[Program, list[torch.Tensor]]:
        program = program_of(text)
        return program, inputs_of(program)

    return make


class Written(Protocol):
    def __call__(self, *lines: str, gives: str = "") -> str: ...


@pytest.fixture
def written() -> Written:
    """A method from its arguments and its lines; it returns `%y`, of the type the last line ends in."""

    def text(arguments: str, *lines: str, gives: str = "") -> str:
        gives = gives or re.split(r" -> | to ", lines[-1])[-1]
        if gives.startswith("("):
            names = lines[-1].partition(" = ")[0].split(", ")
            gives = re.findall(r"[^ (]+\[[^]]*\]", gives)[names.index("%y")]
        body = "\n  ".join(lines)
        whole = f"func.func @forward({arguments}) -> {gives} {{\n  {body}\n  func.return %y : {gives}\n}}\n"
        return long_types(whole)

    return text  # pyright: ignore[reportReturnType]
