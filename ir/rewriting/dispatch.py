"""Dispatch by op class: which rewrites of a pass may match an op, cached per pass and class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from xdsl.ir import Operation

from stepwell.ir.program import Program
from stepwell.ir.side_effects import is_one_of

Ask = Callable[[Any, Program], Any]
"""A function that tries to match an op, as `Rewrite.match`."""

Candidates = tuple[tuple[Any, Ask], ...]
"""Rewrites, each with its match function."""


class Dispatch(dict[type[Operation], Candidates]):
    """Maps an op class to the rewrites whose anchors include it, in order, each with its match
    function.

    `idle` are classes without such rewrites.
    """

    def __init__(self) -> None:
        super().__init__()
        self.idle: set[type[Operation]] = set()


_DISPATCHES: dict[int, tuple[tuple[Any, ...], Dispatch]] = {}
_MOST_DISPATCHES = 1024


def candidates_of(cls: type[Operation], rewrites: Sequence[Any], dispatch: Dispatch) -> Candidates:
    """Return the rewrites whose anchors include a class, in order."""
    candidates = dispatch.get(cls)
    if candidates is None:
        candidates = tuple((r, r.asked_of(cls)) for r in rewrites if is_one_of(cls, r.anchors))
        dispatch[cls] = candidates
    return candidates


def dispatch_of(rewrites: Sequence[Any]) -> Dispatch:
    """Return the dispatch table of earlier runs of the same rewrites, because pipelines are
    long-lived.
    """
    if not isinstance(rewrites, tuple) or len(rewrites) < 2:
        return Dispatch()
    dispatch = _DISPATCHES.get(id(rewrites))
    if dispatch is None or dispatch[0] is not rewrites:
        if len(_DISPATCHES) >= _MOST_DISPATCHES:
            _DISPATCHES.clear()
        dispatch = _DISPATCHES[id(rewrites)] = (rewrites, Dispatch())
    return dispatch[1]


def may_match(rewrites: Sequence[Any], classes: Iterable[type[Operation]]) -> bool:
    """Whether some rewrite has an anchor among some classes."""
    dispatch = dispatch_of(rewrites)
    idle = dispatch.idle
    if idle.issuperset(classes):
        return False
    idle.update(c for c in classes if not candidates_of(c, rewrites, dispatch))
    return not idle.issuperset(classes)
