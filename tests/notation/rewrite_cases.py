"""Tables of rewrite tests: a method in short form, and what a rewrite makes of it.

    threshold-to-clamp: a threshold that jumps -> refused: jumps
        %y = aten.threshold.default(%x: f32[2, 3], 1, 0)
    merge-clamps: clamps in order -> aten.clamp.default
        %a = aten.clamp.default(%x: f32[2, 3], -2, -1)
        %y = aten.clamp.default(%a, 0.5, 6)

`test_clamps = cases(RULES, TEXT)` makes a test of each case of this text. A line that is not
indented starts a case: `rewrite: subject -> outcome`, which is also the test's name.
`one | other: ` runs each, `one + other: ` both together, and without a name all run together. The
lines below are the method (`short_ir`); after `- ` starts another method for the same title.
`; ` separates outcomes:

    refused: text       it is not applied, and a reason on record contains this text
    unchanged           it is not applied, and no reason is on record
    op.name, op.name    the ops of the method afterwards, in order; `nothing` for none
    contains op.name    these ops are among them
    without op.name     these are not
    applied             at least once; `applied once` or `applied 2 times` exactly

The result is verified, interpreted and compared with the method, unless `run=False`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from rewrite_runs import Given, applied, queried

_NAMES = re.compile(r"([\w-]+(?: [+|] [\w-]+)*): ")
_TIMES = re.compile(r"applied(?: (\d+) times)?")


@dataclass(frozen=True)
class Case:
    """One row of a table."""

    title: str
    outcome: str
    text: str
    rewrites: tuple[Given, ...]


def cases(*given: Any, run: bool = True) -> Callable[[Case], None]:
    """Parametrize a test over a table: rewrites, classes or lists of them, and last the text."""
    *rewrites, text = given
    rows = list(_read(text, list(_flat(rewrites))))
    assert len({row.title for row in rows}) == len(rows), "two cases have the same title"

    @pytest.mark.parametrize("case", rows, ids=[row.title for row in rows])
    def test(case: Case) -> None:
        if problem := _problem(case, run):
            pytest.fail(f"{case.title}: {problem}", pytrace=False)

    return test


def _flat(given: Iterable[Any]) -> Iterator[Given]:
    """Yield the rewrites of lists, of classes and of modules of several."""
    for each in given:
        if isinstance(each, list | tuple):
            yield from _flat(each)
        else:
            yield each() if isinstance(each, type) else each


def _read(text: str, rewrites: list[Given]) -> Iterator[Case]:
    """Yield the cases of a text."""
    named = {each.name: each for one in rewrites for each in _named(one)}
    for block in re.split(r"\n(?=\S)", text.strip("\n")):
        title, _, body = re.sub(r"(?m)^ *#.*\n?", "", block).partition("\n")
        subject, arrow, outcome = title.rpartition(" -> ")
        assert arrow, f"a case is `subject -> outcome`, not {title!r}"
        match = _NAMES.match(subject)
        groups = [each.split(" + ") for each in match[1].split(" | ")] if match else [[]]
        if unknown := {name for group in groups for name in group} - {*named}:
            raise ValueError(f"{title!r}: there is no rewrite {unknown} among {sorted(named)}")
        methods = [method for method in re.split(r"(?m)^    - ", body) if method.strip()]
        for group in groups:
            for number, method in enumerate(methods, 1):
                prefix = f"{' + '.join(group)}: " if group else ""
                label = f"{prefix}{title[match.end() if match else 0 :]}"
                label += f" {number}" if len(methods) > 1 else ""
                chosen = [named[name] for name in group] if group else rewrites
                yield Case(label, outcome, method, tuple(chosen))


def _named(given: Given) -> Iterator[Any]:
    if isinstance(given, ModuleType):
        yield from (rule() for rule in given.RULES)
    else:
        yield given


def _problem(case: Case, run: bool) -> str:
    """What differs from the outcome, in a line; empty if nothing does."""
    if run:
        done = applied(case.text, *case.rewrites)
        count, reasons, ops = done.count, done.reasons, done.ops()
    else:
        (rewrite,) = case.rewrites
        (count, reasons), ops = queried(case.text, rewrite), []
    found = f"applied {count} times, to {', '.join(ops) or 'nothing'}"
    found += f"; refused: {' | '.join(reasons)}" if reasons else ""
    met = all(_is_met(each, count, reasons, ops) for each in case.outcome.split("; "))
    return "" if met else f"found {found}"


def _is_met(outcome: str, count: int, reasons: list[str], ops: list[str]) -> bool:
    """Whether one outcome is what happened."""
    kind, _, rest = outcome.partition(" ")
    if outcome == "applied once":
        return count == 1
    if kind == "refused:":
        return count == 0 and any(rest in reason for reason in reasons)
    if outcome == "unchanged":
        return count == 0 and not reasons
    if match := _TIMES.fullmatch(outcome):
        return count == int(match[1]) if match[1] else count > 0
    if kind == "contains":
        return set(rest.split(", ")) <= {*ops}
    if kind == "without":
        return not set(rest.split(", ")) & {*ops}
    return count > 0 and ops == ([] if outcome == "nothing" else outcome.split(", "))
