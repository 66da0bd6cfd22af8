"""Tables of rewrite tests: a method in short form, and what a rewrite makes of it.

    threshold-to-clamp: a threshold that jumps -> refused: jumps
        %y = aten.threshold.default(%x: f32[2, 3], 1, 0)
    merge-clamps: clamps in order -> aten.clamp.default
        %a = aten.clamp.default(%x: f32[2, 3], -2, -1)
        %y = aten.clamp.default(%a, 0.5, 6)

`test_clamps = cases(RULES)(TEXT)` makes a test of each case of this text. A line that is not
indented starts a case: `rewrite: subject -> outcome`, which is also the test's name.
`one | other: ` runs each, `one + other: ` both together, a module's name all of its rules, and no
name all that are given. The lines below are the method (`short_ir`); after `- ` starts another
method for the same title. `; ` separates outcomes:

    refused: text       it is not applied, and a reason on record contains this text
    unchanged           it is not applied, and no reason is on record
    op.name, op.name    the ops of the method afterwards, in order; `nothing` for none
    contains op.name    these ops are among them
    without op.name     these are not
    2 op.name           this many of them
    writes text         the text of the method afterwards contains this; `omits text`
    applied             at least once; `applied once` or `applied 2 times` exactly

The result is verified, interpreted and compared with the method, unless `run=False`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from rewrite_runs import Given, applied, queried

_NAMES = re.compile(r"([\w-]+(?: [+|] [\w-]+)*): ")


@dataclass(frozen=True)
class Case:
    """One row of a table."""

    title: str
    outcome: str
    text: str
    rewrites: tuple[Given, ...]


def cases(*given: Any, run: bool = True) -> Callable[[str], Callable[[Case], None]]:
    """Return a function from the text of a table to its test, for rewrites, classes or lists."""

    def table(text: str) -> Callable[[Case], None]:
        rows = list(_read(text, list(_flat(given))))
        assert len({row.title for row in rows}) == len(rows), "two cases have the same title"

        @pytest.mark.parametrize("case", rows, ids=[row.title for row in rows])
        def test(case: Case) -> None:
            if problem := _problem(case, run):
                pytest.fail(f"{case.title}: {problem}", pytrace=False)

        return test

    return table


def _flat(given: Iterable[Any]) -> Iterator[Given]:
    """Yield the rewrites of lists, of classes and of modules of several."""
    for each in given:
        if isinstance(each, list | tuple):
            yield from _flat(each)
        else:
            yield each() if isinstance(each, type) else each


def _read(text: str, rewrites: list[Given]) -> Iterator[Case]:
    """Yield the cases of a text."""
    named = dict[str, Given]()
    for name, each in (pair for one in rewrites for pair in _named(one)):
        assert _options(each) == _options(named.setdefault(name, each)), f"two are named {name}"
    for block in re.split(r"\n(?=\S)", text.strip("\n")):
        title, _, body = re.sub(r"(?m)^ *#.*\n?", "", block).partition("\n")
        subject, arrow, outcome = title.partition(" -> ")
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


def _named(given: Given) -> Iterator[tuple[str, Given]]:
    """Yield rewrites with their names: a module with that of its file, and its rules."""
    if isinstance(given, ModuleType):
        yield given.__name__.rpartition(".")[2], given
        for rule in given.RULES:
            yield (one := rule()).name, one
    else:
        yield given.name, given


def _options(given: Given) -> Any:
    """The class and options of a rewrite."""
    options = {name: value for name, value in vars(given).items() if name[0] != "_"}
    return given if isinstance(given, ModuleType) else (type(given), options)


def _problem(case: Case, run: bool) -> str:
    """What differs from the outcome, in a line; empty if nothing does."""
    if run:
        done = applied(case.text, *case.rewrites)
        found = Found(done.count, done.reasons, done.ops(), done.text)
    else:
        (rewrite,) = case.rewrites
        assert re.fullmatch("refused: .*|unchanged|applied.*", case.outcome), case.title
        found = Found(*queried(case.text, rewrite))
    missed = [each for each in case.outcome.split("; ") if not found.meets(each)]
    return f"not {'; '.join(missed)}: {found}" if missed else ""


@dataclass
class Found:
    """What rewrites made of a method."""

    count: int
    reasons: list[str]
    ops: Sequence[str] = ()
    text: str = ""

    def __str__(self) -> str:
        reasons = f"; refused: {' | '.join(self.reasons)}" if self.reasons else ""
        return f"applied {self.count} times, to {', '.join(self.ops) or 'nothing'}{reasons}"

    def meets(self, outcome: str) -> bool:
        """Whether this outcome is what happened."""
        kind, _, rest = outcome.partition(" ")
        if kind == "refused:":
            return not self.count and any(rest in reason for reason in self.reasons)
        if outcome == "unchanged":
            return not self.count and not self.reasons
        if kind == "applied":
            times = "1" if rest == "once" else rest.removesuffix(" times")
            return self.count == int(times) if times else self.count > 0
        if kind in ("contains", "without"):
            return all((name in self.ops) == (kind == "contains") for name in rest.split(", "))
        if kind in ("writes", "omits"):
            return (rest in self.text) == (kind == "writes")
        if kind.isdigit():
            return list(self.ops).count(rest) == int(kind)
        return self.count > 0 and list(self.ops) == (
            [] if outcome == "nothing" else outcome.split(", ")
        )
