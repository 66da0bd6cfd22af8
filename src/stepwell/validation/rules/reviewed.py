"""Functions of this project's rules that were looked at, and what they read of axes and sizes.

A function that visits, compares, permutes and inverts axes, but never compares their number with a
literal, or names one by a literal, does at rank 7 what it does at rank 3. The table
`reviewed.json` says for each function how many axes its literals name, with which numbers it
compares the number of axes, and what in it cannot be followed. `tools/reviewed_functions.py` reads
that in the source (`tools/uniformity.py`), and prints what is new to whoever looks at it: code has
more ways to count axes than a reader of source knows. The table is trusted. It has a digest of the
source of each function, so that a function that is new, has changed, or is no plain function is not
in it, nor any function of a plug-in.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from inspect import getsource, unwrap
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from stepwell.validation.rules.hashes import names_in

TABLE = Path(__file__).with_name("reviewed.json")
FOLLOWED = ("stepwell.translate.", "stepwell.ir.axes.")
"""Modules whose functions are read; those of the IR itself are its operations."""
_GENERATED = ("__init__", "__eq__", "__repr__", "__hash__")
MOST_AXES = 64
"""PyTorch's limit of axes: a greater number is none of axes."""
_LIMITS = (2**31 - 1, 2**63 - 1)
"""Limits of integers, with which no size is compared but to refuse it."""


@dataclass
class Reading:
    """What a rule's functions read of the number of axes.

    Attributes:
        front, back: the number of axes that literals name from the front, and from the back.
        threshold: the largest literal that a number of axes is compared with.
        largest: the largest literal that names no axis.
        reads_sizes: whether more is read of a shape than its number of axes.
        problems: constructs that are not followed, with the function in which they are.
    """

    front: int = 0
    back: int = 0
    threshold: int = 0
    reads_sizes: bool = False
    largest: int = 0
    problems: list[str] = field(default_factory=list[str])

    @property
    def named(self) -> int:
        """Return the number of axes that literals name."""
        return self.front + self.back

    def literal(self, number: int) -> None:
        """Record an integer that may name an axis."""
        if number in _LIMITS:
            return
        if abs(number) > MOST_AXES:
            self.largest = max(self.largest, abs(number))
        else:
            self.back = max(self.back, -number)
            self.front = max(self.front, number + 1 if number >= 0 else 0)

    def add(self, row: Mapping[str, Any]) -> None:
        """Record what the table says of a function."""
        for name in ("front", "back", "threshold", "largest", "reads_sizes"):
            setattr(self, name, max(getattr(self, name), row.get(name, 0)))
        self.problems += row.get("problems", ())


@cache
def table() -> Mapping[str, Mapping[str, Any]]:
    """Return what is known of each function that was read, by its name."""
    return json.loads(TABLE.read_text(encoding="utf-8"))


def named(function: FunctionType) -> str:
    """Return a function's name in the table."""
    return f"{function.__module__}.{function.__qualname__}"


def digest_of(function: FunctionType) -> str:
    """Return a digest of a function's source; empty if it has none."""
    try:
        return hashlib.sha256(getsource(function).encode()).hexdigest()[:16]
    except (OSError, TypeError):
        return ""


def called(function: FunctionType) -> Iterator[FunctionType]:
    """Yield the functions that a function names: globals, members of modules, and methods of
    classes that it names.
    """
    names = frozenset(names_in(function.__code__))
    for name in names:
        value = function.__globals__.get(name)
        held = [value]
        if isinstance(value, ModuleType):
            held = [getattr(value, each, None) for each in names]
        elif isinstance(value, type) and value.__module__.startswith("stepwell."):
            held = [vars(value).get(each) for each in (*names, "__init__", "__post_init__")]
        for each in held:
            each = each.fget if isinstance(each, property) else each
            each = unwrap(getattr(each, "__func__", each)) if callable(each) else each
            if isinstance(each, FunctionType):
                yield each


def reached(values: Iterable[Any], followed: tuple[str, ...] = FOLLOWED) -> Iterator[Any]:
    """Yield some callables and the functions of some modules that they call."""
    waiting, seen = list(values), set[int]()
    while waiting:
        value = unwrap(waiting.pop()) if callable(waiting[-1]) else waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        if isinstance(value, FunctionType):
            inner = (unwrap(each) for each in called(value))
            waiting += [f for f in inner if f"{f.__module__}.".startswith(followed)]


def reading(values: Mapping[str, Any], *, have_axes: bool = True) -> Reading:
    """Return what the callables that a rule names, and those that they call, read of axes.

    Args:
        values: the callables, by name.
        have_axes: whether integers and lists among the rule's arguments may be axes.
    """
    found, rows = Reading(), dict[FunctionType, Mapping[str, Any]]()
    for value in reached(values.values()):
        if not isinstance(value, FunctionType):
            name = getattr(value, "__name__", value)
            found.problems.append(f"{name!s:.60} is no plain function")
            continue
        if value.__code__.co_filename.startswith("<") and value.__name__ in _GENERATED:
            continue  # A method of a dataclass.
        row = table().get(named(value), {})
        if value.__closure__ or row.get("digest") != digest_of(value):
            found.problems.append(f"{named(value)} was not looked at for other ranks")
        else:
            rows[value] = row
    tested = tested_by({function: row.get("tests", ()) for function, row in rows.items()})
    for function, row in rows.items():
        if have_axes or row.get("reads_types"):
            found.add(row.get("if_tested", row) if function.__name__ in tested else row)
    return found


def tested_by(tests: Mapping[FunctionType, Iterable[str]]) -> set[str]:
    """Return the names of functions whose refusals may do more than refuse: some function tests
    them instead of returning them, or one that is tested calls them.
    """
    calls = dict[str, list[str]]()
    for function in tests:
        names = (each.__name__ for each in called(function) if each in tests)
        calls.setdefault(function.__name__, []).extend(names)
    waiting = [name for names in tests.values() for name in names]
    found = set[str]()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += calls.get(name, ())
    return found
