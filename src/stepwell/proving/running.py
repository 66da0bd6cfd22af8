"""Verdicts on many rules, each in a process of its own: none hangs on what was asked before.

A solver's terms have numbers in the order in which they are made, and its search goes by them: in a
process of its own a rule has the same verdict whichever rules are put before it.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from stepwell.dialects.symbols import Symbols
from stepwell.ir.dtypes import f32
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import tensor
from stepwell.proving.guards import without_each
from stepwell.proving.known import Dropped
from stepwell.proving.solver import z3
from stepwell.proving.verdicts import Verdict, prove, rules

T = TypeVar("T")


def prove_each(names: Sequence[str], jobs: int | None = None) -> Iterator[Verdict]:
    """The verdicts on rules, in their order.

    Args:
        names: of rules, as `rules()` has them.
        jobs: processes at once; as many as there are cores where none is given.
    """
    return _each(_proved, names, jobs)


def without_conditions(names: Sequence[str], jobs: int | None = None) -> Iterator[list[Dropped]]:
    """For each rule what becomes of it without each of its conditions."""
    return _each(_dropped, names, jobs)


def _proved(name: str) -> Verdict:
    return replace(prove(rules()[name]), rule=name)


def _dropped(name: str) -> list[Dropped]:
    return list(without_each(name, rules()[name]))


def _each(function: Callable[[str], T], names: Sequence[str], jobs: int | None) -> Iterator[T]:
    """A function of each name, in processes that are forked: nothing is imported twice."""
    count = min(jobs or os.cpu_count() or 1, len(names))
    if (count <= 1 and len(names) <= 1) or "fork" not in multiprocessing.get_all_start_methods():
        yield from map(function, names)
        return
    rules()
    _import_all()
    context: Any = multiprocessing.get_context("fork")
    with context.Pool(count, maxtasksperchild=1) as pool:
        yield from pool.imap(function, names, chunksize=1)


def _import_all() -> None:
    """Import what the first symbolic size and the first question to the solver import.

    That is some 750 modules of torch's, two CPU seconds, which each process would spend again.
    """
    z3.get_version()
    symbols = Symbols()
    fake = symbols.fake(tensor([Size.symbol("n"), 2], f32))
    with symbols.on_fakes():
        fake.flatten()
