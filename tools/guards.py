"""Remove one guard of a rewrite at a time; a test must fail.

A guard is a condition under which a rewrite does not match: `if …: return None`, `return
Refusal(…)` or, in a lowering, `refuse(…)`, with each side of an `or` separately; `return … if …
else Refusal(…)`, with each side of an `and` separately; and the refusals before the match in
`return not_for(op) or Match(op)`.

Every guard gets a switch. One run of the tests records in which of them a guard's condition is
true; only those can detect its removal. They then run in a forked process with the guard switched
off, the fastest first, until one fails. That test is the guard's witness: on the *result* if the
computed value differs, is invalid or cannot be built, on the *structure* if only the program or the
reason differs.

    python tools/guards.py                  all rewrites against all tests of rewrites
    python tools/guards.py -k 'aten/[a-f]'  only guards of files whose path matches
    python tools/guards.py --reach          only record in how many tests each guard is reached
    python tools/guards.py --keep TESTS     guards with a witness keep it if neither file changed;
                                            the others are tried against these tests, of which
                                            those that changed are run once
    python tools/guards.py --report         the table of all known results, for docs/guards.md

Results are stored in `bench/results/guards.json` every 20 guards, and in `guards-reach.jsonl`, as
each test ends, the guards that it reaches. A partial run (`-k`, some tests) keeps what is known of
others, and an interrupted run continues with `--keep`. Exit status 1 if a selected guard survives.
"""

from __future__ import annotations

import argparse
import ast
import gc
import hashlib
import importlib
import inspect
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from types import CodeType, FunctionType
from typing import Any

import pytest
from guard_switches import Switches

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("canonicalize", "decompositions", "lowerings", "rewrites")
"""Folders below `translate` with rewrites that are classes, and lowerings that are functions."""
RESULTS = ROOT / "bench" / "results" / "guards.json"
REACH = RESULTS.with_name("guards-reach.jsonl")
SUITES = [
    "tests/rewrites",
    "tests/contracts",
    "tests/quant",
    "tests/xnnpack",
    "tests/tosa",
    "tests/cmsis",
]
SECONDS = 60
"""The time limit of one test, so that a guard whose absence causes an endless loop is noticed."""
AT_MOST = 20.0
"""The recorded seconds of tests that are tried before a guard counts as surviving."""

FEW = 20
"""The number of further tests in the reaching files that are tried in addition to the reaching
tests.
"""


@dataclass
class Guard:
    """One condition and the test that fails without it; `last` is the previously known witness."""

    file: str
    function: str
    line: int
    text: str
    nth: int = 0
    seen: int = 0
    witness: str | None = None
    on: str = ""
    last: str = ""

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The key in other runs, independent of line numbers."""
        return self.file, self.function, self.text, self.nth


def code_of(code: CodeType, qualified: str) -> CodeType:
    """Return the code object of a function or method inside a module's."""
    for part in qualified.split("."):
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == part)
    return code


class Guards:
    """All guards, each with its switch; `off` is the guard that is switched off."""

    def __init__(self) -> None:
        self.all: list[Guard] = []
        self.holding: set[int] = set()
        self.off: int | None = None
        for folder in FOLDERS:
            below = ROOT / "translate" / folder
            for path in sorted(below.rglob("*/*.py")):
                file = str(path.relative_to(below).with_suffix(""))
                if path.stem != "__init__":
                    self._install(path, file, folder)

    def holds(self, number: int) -> bool:
        """Called where a guard's condition is true: whether the guard is on."""
        self.holding.add(number)
        return number != self.off

    def unless(self, refusal: Any, number: int) -> Any:
        """Return the refusal of `refusal or match`, if there is one and its guard is on."""
        return refusal if not refusal or self.holds(number) else None

    def _install(self, path: Path, file: str, folder: str) -> None:
        source = path.read_text()
        tree = ast.parse(source)
        switched: list[str] = []
        for name, function in _functions(tree):
            before = len(self.all)

            def found(line: int, text: str, name: str = name) -> int:
                nth = sum((file, name, text) == guard.key[:3] for guard in self.all)
                self.all.append(Guard(file, name, line, text, nth))
                return len(self.all) - 1

            if not name.endswith(".build"):
                Switches(source, found).visit(function)
            if len(self.all) > before:
                switched.append(name)
        if not switched:
            return
        module = importlib.import_module(f"stepwell.translate.{folder}.{file.replace('/', '.')}")
        vars(module).update(__guard__=self.holds, __unless__=self.unless)
        compiled = compile(ast.fix_missing_locations(tree), str(path), "exec")
        for name in switched:
            live: Any = module
            for part in name.split("."):
                live = inspect.unwrap(getattr(live, part))
            assert isinstance(live, FunctionType), f"{file}: {name}"
            live.__code__ = code_of(compiled, name)


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for owner in [tree, *(n for n in tree.body if isinstance(n, ast.ClassDef))]:
        for node in owner.body:
            if isinstance(node, ast.FunctionDef):
                yield f"{owner.name}.{node.name}" if owner is not tree else node.name, node


# --- runs ----------------------------------------------------------------------------------


class Reach:
    """How long each test takes and which guards it reaches, stored between runs.

    A record is valid while its test's file is unchanged. If a rewrite has changed since, a test may
    be missing, but a test that is found is never wrong, because it fails without the guard and
    passes with it.
    """

    def __init__(self, guards: list[Guard], keep: bool) -> None:
        self.numbers = {guard.key: number for number, guard in enumerate(guards)}
        self.keys = [guard.key for guard in guards]
        self.tests: dict[str, tuple[float | None, set[int]]] = {}
        for line in REACH.read_text().splitlines() if keep and REACH.exists() else []:
            entry = json.loads(line)
            if entry["digest"] == digest(ROOT / entry["test"].partition("::")[0]):
                self._take(entry)

    def add(self, test: str, seconds: float | None, holding: list[int]) -> None:
        """Record what one test did; a test without seconds does not pass."""
        file = digest(ROOT / test.partition("::")[0])
        holds = [self.keys[number] for number in holding]
        entry = {"test": test, "digest": file, "seconds": seconds, "holds": holds}
        self._take(entry)
        self._write(entry)

    def _take(self, entry: dict[str, Any]) -> None:
        known = {self.numbers[key] for key in map(tuple, entry["holds"]) if key in self.numbers}
        self.tests[entry["test"]] = entry["seconds"], known

    def _write(self, entry: dict[str, Any]) -> None:
        REACH.parent.mkdir(exist_ok=True)
        with REACH.open("a") as out:
            out.write(json.dumps(entry) + "\n")


class Trial:
    """A pytest plugin that collects once, then tries one guard after the other in
    forked processes.
    """

    def __init__(
        self,
        guards: Guards,
        wanted: list[int],
        reach: Reach,
        workers: int,
        keep: Callable[[], None],
        reach_only: bool = False,
    ) -> None:
        self.guards, self.wanted, self.reach = guards, wanted, reach
        self.workers, self.keep, self.reach_only = workers, keep, reach_only
        self.items: dict[str, Any] = {}
        self.tried = 0
        self.failure = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Store the text of the first failure."""
        if report.failed and not self.failure:
            self.failure = str(report.longrepr)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Any) -> bool:
        """Replaces pytest's loop."""
        self.items = {item.nodeid: item for item in session.items}
        self._record([name for name in self.items if name not in self.reach.tests])
        seconds: dict[str, float] = {}
        tests: dict[int, list[str]] = {}
        for name in self.items:
            took, holding = self.reach.tests[name]
            if took is not None:
                seconds[name] = took
                for number in holding:
                    tests.setdefault(number, []).append(name)
        print(f"{len(seconds)} tests pass and reach {len(tests)} of {len(self.guards.all)} guards")
        for number, reached in tests.items():
            self.guards.all[number].seen = len(reached)
        if self.reach_only:
            return True

        def attempt(number: int) -> None:
            guard = self.guards.all[number]
            folder = guard.file.partition("/")[0]
            own = f"tests/rewrites/{folder}/"
            order = sorted(tests.get(number, []), key=lambda t: (own not in t, seconds[t]))
            # State that several tests share is created in the first one of a file only.
            files = {name.partition("::")[0] for name in order}
            neighbors = {name for name in seconds if name.partition("::")[0] in files} - set(order)
            order += sorted(neighbors, key=seconds.__getitem__)[:FEW]
            if guard.last in seconds:
                order = [guard.last, *(name for name in order if name != guard.last)]
            while order:
                witness, on = self._without(number, order, seconds)
                if witness is None:
                    break
                if not self._fails_alone(witness):
                    guard.witness, guard.on, guard.last = witness, on, witness
                    break
                order.remove(witness)
            self.tried += 1
            if self.tried % 20 == 0:
                with saving:  # `ast.parse` is not for several threads at once.
                    self.keep()
                print(f"{self.tried} tried", file=sys.stderr, flush=True)

        saving = Lock()
        with ThreadPoolExecutor(self.workers) as pool:
            list(pool.map(attempt, self.wanted))
        return True

    def _passes(self, item: Any, following: Any = None) -> bool:
        self.failure = ""
        signal.alarm(SECONDS)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        signal.alarm(0)
        return not self.failure

    def _record(self, names: list[str]) -> None:
        """Record where guards are reached, in a forked process; a test that terminates it does not
        pass.
        """

        def work(answer: Callable[[Any], None]) -> None:
            for name, following in zip(names, [*names[1:], None], strict=True):
                self.guards.holding.clear()
                started = time.perf_counter()
                passes = self._passes(self.items[name], following and self.items[following])
                took = time.perf_counter() - started if passes else None
                answer([name, took, sorted(self.guards.holding)])

        while names:
            done = 0
            for name, took, holding in _answers(work):
                self.reach.add(name, took, holding)
                done += 1
                if done % 200 == 0:
                    print(f"{done} of {len(names)} tests run", file=sys.stderr, flush=True)
            if done < len(names):
                self.reach.add(names[done], None, [])
            names = names[done + 1 :]

    def _without(
        self, number: int, order: list[str], seconds: dict[str, float]
    ) -> tuple[str | None, str]:
        """Return the first test that fails with a guard switched off, or that terminates its
        process.
        """

        def work(answer: Callable[[Any], None]) -> None:
            self.guards.off = number
            spent = 0.0
            for name in order:
                if spent and spent + seconds[name] > AT_MOST:
                    break
                spent += seconds[name]
                answer([name, "result"])
                if not self._passes(self.items[name]):
                    return answer([name, "result" if _is_of_result(self.failure) else "structure"])
            return answer([None, ""])

        *_, (witness, on) = _answers(work)
        return witness, on

    def _fails_alone(self, name: str) -> bool:
        return list(_answers(lambda answer: answer(self._passes(self.items[name])))) != [True]


def _answers(work: Callable[[Callable[[Any], None]], None]) -> Iterator[Any]:
    """Yield the messages of a forked process until it ends, crashes or hangs."""
    reading, writing = os.pipe()
    gc.freeze()  # a collection in a child would copy every page
    child = os.fork()
    if child == 0:
        gc.disable()
        os.setsid()  # A test that reads the terminal would stop the whole process group.
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(quiet, stream)
        with os.fdopen(writing, "w") as out:
            work(lambda answer: print(json.dumps(answer), file=out, flush=True))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        yield from map(json.loads, answers)
    os.waitpid(child, 0)


def _is_of_result(failure: str) -> bool:
    """Whether the failure of a test is a wrong or missing result."""
    last = [line for line in failure.splitlines() if line.startswith("E  ")]
    of_table = re.search(r": not .*: applied \d+ times", failure)
    return "assert_within" in failure or not (of_table or any("assert " in line for line in last))


# --- results -------------------------------------------------------------------------------


def digest(path: Path) -> str:
    """Return a short digest of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else ""


def digest_of_test(name: str) -> str:
    """Return a short digest of the source of a test: a function, or a table of cases."""
    file, _, function = name.partition("::")
    words = re.split(r"::|\[", function)
    for node in ast.walk(ast.parse((ROOT / file).read_text())) if (ROOT / file).exists() else ():
        named = node.name if isinstance(node, ast.FunctionDef) else ""
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named = node.targets[0].id
        if named in words:
            return hashlib.sha256(ast.unparse(node).encode()).hexdigest()[:16]
    return ""


def source_of(file: str) -> str:
    """Return the path of a file of guards, relative to the root."""
    paths = [f"translate/{folder}/{file}.py" for folder in FOLDERS]
    return next((path for path in paths if (ROOT / path).exists()), paths[0])


def remembered(guards: Guards) -> list[int]:
    """Restore the witnesses of earlier runs for unchanged guards, and return the numbers of the
    others.
    """
    held = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"guards": [], "digests": {}}
    known = {Guard(**entry).key: Guard(**entry) for entry in held["guards"]}
    was = held["digests"]
    left: list[int] = []
    for number, guard in enumerate(guards.all):
        entry = known.get(guard.key)
        if entry is not None:
            guard.seen, guard.last = entry.seen, entry.last
            parts = {source_of(guard.file): digest(ROOT / source_of(guard.file))}
            if entry.last:
                parts[entry.last] = digest_of_test(entry.last)
            if entry.witness and all(was.get(part) == now for part, now in parts.items()):
                guard.witness, guard.on = entry.witness, entry.on
        if guard.witness is None:
            left.append(number)
    return left


def save(guards: list[Guard]) -> None:
    """Write results, with digests of all that they depend on."""
    digests = {source_of(guard.file): digest(ROOT / source_of(guard.file)) for guard in guards}
    digests |= {guard.last: digest_of_test(guard.last) for guard in guards if guard.last}
    held = {"digests": digests, "guards": [asdict(guard) for guard in guards]}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(held, indent=1) + "\n")


def table(guards: list[Guard]) -> str:
    """Render guards by folder as Markdown, then the survivors by name."""
    rows = [
        "| rewrites | guards | caught | on the result | on the structure |",
        "|---|---|---|---|---|",
    ]
    folders = sorted({guard.file.partition("/")[0] for guard in guards})
    for name in [*folders, "all"]:
        of = [g for g in guards if name in ("all", g.file.partition("/")[0])]
        caught = [g for g in of if g.witness]
        by = [sum(g.on == kind for g in caught) for kind in ("result", "structure")]
        rows.append(f"| {name} | {len(of)} | {len(caught)} | {by[0]} | {by[1]} |")
    held = Counter("/".join(g.witness.split("/")[:2]) for g in guards if g.witness)
    rows += ["", f"Witnesses: {', '.join(f'{n} in {name}' for name, n in held.most_common())}."]
    left = [g for g in guards if not g.witness]
    if left:
        rows += ["", "| survivor | condition | tests in which it holds |", "|---|---|---|"]
        rows += [
            f"| {g.file} `{g.function}` | `{g.text.replace('|', chr(92) + '|')}` | {g.seen} |"
            for g in left
        ]
    return "\n".join(rows)


def main() -> int:
    """Try the guards and print the table; exit status 1 if a guard survives."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tests", nargs="*", default=SUITES)
    parser.add_argument("-k", dest="words", default="", help="files in whose path this is found")
    parser.add_argument("--keep", action="store_true", help="keep witnesses of unchanged files")
    parser.add_argument("--reach", action="store_true", help="switch no guard off")
    parser.add_argument("--report", action="store_true", help="only print the last run's table")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    os.chdir(ROOT)
    import torch

    import stepwell.pipelines.npu  # noqa: F401  (what every child needs, before the first fork)

    torch.set_num_threads(1)
    guards = Guards()
    left = set(remembered(guards))
    found = [guard for guard in guards.all if re.search(arguments.words, guard.file)]
    wanted = [
        number
        for number, guard in enumerate(guards.all)
        if re.search(arguments.words, guard.file) and (number in left or not arguments.keep)
    ]
    if not arguments.report:
        for number in wanted:
            guards.all[number].witness = None
        reach = Reach(guards.all, arguments.keep)
        options = ["-q", "-p", "no:cacheprovider", "--tb=short"]
        keep = lambda: save(guards.all)  # noqa: E731
        trial = Trial(guards, wanted, reach, arguments.workers, keep, arguments.reach)
        pytest.main([*options, *arguments.tests], plugins=[trial])
        if not arguments.reach:
            keep()
    print(table(found))
    return 0 if all(guard.witness for guard in found) else 1


if __name__ == "__main__":
    sys.exit(main())
