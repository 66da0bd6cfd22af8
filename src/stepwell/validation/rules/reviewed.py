"""Functions of this project's rules that were looked at: they treat every rank alike.

`uniformity` finds constructs by which a function could tell one rank from another, but a function
that it accepts is no proof: code has more ways to count than it knows. A verdict "any rank"
therefore rests on this table too, which is trusted. It has a digest of the source of each function,
so that a function that is new, has changed, or is no plain function is not in it, nor any function
of a plug-in.

    python tools/reviewed_functions.py   # writes it anew, without those of `EXCLUDED`
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from inspect import getsource, unwrap
from pathlib import Path
from types import FunctionType
from typing import Any

from stepwell.validation.rules.uniformity import called

TABLE = Path(__file__).with_name("reviewed.json")
_FOLLOWED = ("stepwell.translate.", "stepwell.ir.axes.")
"""Modules whose functions are read; those of the IR itself are its operations."""


_GENERATED = ("__init__", "__eq__", "__repr__", "__hash__")
EXCLUDED = frozenset(("stepwell.translate.rewrites.xnnpack.nodes.lower_shape.with_units",))
"""Functions that tell ranks apart: by the parity of the number of axes of size 1."""


@cache
def table() -> Mapping[str, str]:
    """Return the digest of each function that was read, by its name."""
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


def reached(values: Iterable[Any]) -> Iterator[Any]:
    """Yield some callables and the functions that they call, as far as those are read."""
    waiting, seen = list(values), set[int]()
    while waiting:
        value = unwrap(waiting.pop()) if callable(waiting[-1]) else waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        if isinstance(value, FunctionType):
            inner = (unwrap(each) for each in called(value))
            waiting += [f for f in inner if f"{f.__module__}.".startswith(_FOLLOWED)]


def unread(values: Mapping[str, Any]) -> list[str]:
    """Return the callables that a rule names, and those that they call, that nobody has read."""
    found: list[str] = []
    for value in reached(values.values()):
        if not isinstance(value, FunctionType):
            found.append(f"{getattr(value, '__name__', value)!s:.60} is no plain function")
        elif value.__code__.co_filename.startswith("<") and value.__name__ in _GENERATED:
            continue  # A method of a dataclass.
        elif value.__closure__ or table().get(named(value)) != digest_of(value):
            found.append(f"{named(value)} was not looked at for other ranks")
    return sorted(found)
