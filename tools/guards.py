"""Remove one guard of a rewrite at a time; a test must fail.

A guard is a condition under which a rewrite leaves an op alone: `if …: return None`,
`return Refusal(…)` or, in a lowering, `refuse(…)`, each side of an `or` for itself; `return … if …
else Refusal(…)`, each side of an `and` for itself; and the refusals before the match in
`return not_for(op) or Match(op)`.

Every guard gets a switch. One run of the tests notes in which of them a guard holds: only those
can see it go. They then run in a forked process with the guard switched off, the quickest first,
until one fails. That is the guard's witness: on the *result* if what is computed differs, is
invalid or cannot be built, on the *structure* if only the program or the reason is another one.

    python tools/guards.py                  all rewrites against all tests of rewrites
    python tools/guards.py -k 'aten/[a-f]'  only guards of files in whose path this is found
    python tools/guards.py --reach          only note in how many tests each guard holds
    python tools/guards.py --keep TESTS     what has a witness keeps it where neither file changed;
                                            the others are tried against these tests
    python tools/guards.py --report         the table of the last run, for docs/guards.md

Results are kept in `bench/results/guards*.json` every 20 guards, those of a part in a file of its
own: what was interrupted goes on with `--keep`. Exit status 1 if a guard survives.
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("rewrites", "lowerings")
"""Below `translate`: rewrites that are classes, and lowerings that are functions."""
RESULTS = ROOT / "bench" / "results"
SUITES = [
    "tests/rewrites",
    "tests/contracts",
    "tests/quant",
    "tests/xnnpack",
    "tests/tosa",
    "tests/cmsis",
]
SECONDS = 120
"""How long the tests of one guard may take; a guard whose absence hangs is noticed."""
AT_MOST = 40.0
"""How many recorded seconds of tests are tried before a guard counts as surviving."""


@dataclass
class Guard:
    """One condition, and the test that fails without it."""

    file: str
    function: str
    line: int
    text: str
    seen: int = 0
    witness: str | None = None
    on: str = ""


# --- switches ------------------------------------------------------------------------------


def leaves_alone(node: ast.expr | None) -> bool:
    """Whether a returned expression says that the op is left alone."""
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return True
    return _refuses(node) or (isinstance(node, ast.Name) and node.id == "refusal")


def _refuses(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Refusal", "refuse")


class Switches(ast.NodeTransformer):
    """Writes `condition and __guard__(n)` for each guard of one function."""

    def __init__(self, source: str, found: Callable[[int, str], int]) -> None:
        self.source, self.found = source, found

    def _switch(self, condition: ast.expr) -> ast.Call:
        text = ast.get_source_segment(self.source, condition) or ""
        number = self.found(condition.lineno, " ".join(text.split()))
        name = ast.Name("__guard__", ast.Load())
        return ast.copy_location(ast.Call(name, [ast.Constant(number)], []), condition)

    def _fires(self, test: ast.expr) -> ast.expr:
        """`a or b` to `(a and on(1)) or (b and on(2))`."""
        sides = test.values if _is(test, ast.Or) else [test]
        switched = [ast.BoolOp(ast.And(), [side, self._switch(side)]) for side in sides]
        return switched[0] if len(switched) == 1 else ast.BoolOp(ast.Or(), list(switched))

    def _lets_through(self, test: ast.expr) -> ast.expr:
        """`a and b` to `(a or not on(1)) and (b or not on(2))`."""
        sides = test.values if _is(test, ast.And) else [test]
        switched = [
            ast.BoolOp(ast.Or(), [side, ast.UnaryOp(ast.Not(), self._switch(side))])
            for side in sides
        ]
        return switched[0] if len(switched) == 1 else ast.BoolOp(ast.And(), list(switched))

    def visit_If(self, node: ast.If) -> ast.If:
        """`if …: return None`."""
        self.generic_visit(node)
        only = node.body[0]
        is_alone = len(node.body) == 1
        returns = isinstance(only, ast.Return) and leaves_alone(only.value)
        if is_alone and (returns or (isinstance(only, ast.Expr) and _refuses(only.value))):
            node.test = self._fires(node.test)
        return node

    def visit_Return(self, node: ast.Return) -> ast.Return:
        """`return … if … else Refusal(…)` and `return not_for(op) or Match(op)`."""
        chosen = node.value
        if isinstance(chosen, ast.IfExp) and _refuses(chosen.body) != _refuses(chosen.orelse):
            refuses_if = _refuses(chosen.body)
            chosen.test = (self._fires if refuses_if else self._lets_through)(chosen.test)
        elif _is(chosen, ast.Or) and _builds(chosen.values[-1]):
            for at, side in enumerate(chosen.values[:-1]):
                name = ast.Name("__unless__", ast.Load())
                chosen.values[at] = ast.Call(name, [side, *self._switch(side).args], [])
        return node


def _is(node: ast.expr | None, kind: type[ast.boolop]) -> Any:
    return isinstance(node, ast.BoolOp) and isinstance(node.op, kind)


def _builds(node: ast.expr) -> bool:
    name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
    return name[:1].isupper()


def code_of(code: CodeType, qualified: str) -> CodeType:
    """The code object of a function or method inside a module's."""
    for part in qualified.split("."):
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == part)
    return code


class Guards:
    """All guards, each with its switch; `off` is the one that is switched off."""

    def __init__(self, words: str) -> None:
        self.all: list[Guard] = []
        self.holding: set[int] = set()
        self.off: int | None = None
        for folder in FOLDERS:
            below = ROOT / "translate" / folder
            for path in sorted(below.rglob("*/*.py")):
                file = str(path.relative_to(below).with_suffix(""))
                if re.search(words, file) and path.stem != "__init__":
                    self._install(path, file, folder)

    def holds(self, number: int) -> bool:
        """Asked where a guard's condition is true: whether the guard stands."""
        self.holding.add(number)
        return number != self.off

    def unless(self, refusal: Any, number: int) -> Any:
        """A refusal of `refusal or match`, if there is one and its guard stands."""
        return refusal if not refusal or self.holds(number) else None

    def _install(self, path: Path, file: str, folder: str) -> None:
        source = path.read_text()
        tree = ast.parse(source)
        switched: list[str] = []
        for name, function in _functions(tree):
            before = len(self.all)

            def found(line: int, text: str, name: str = name) -> int:
                self.all.append(Guard(file, name, line, text))
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


class Trial:
    """A pytest plugin: collects once, then tries guard after guard in forked processes."""

    def __init__(
        self,
        guards: Guards,
        wanted: list[int],
        workers: int,
        keep: Callable[[], None],
        reach_only: bool = False,
    ) -> None:
        self.guards, self.wanted, self.workers, self.keep = guards, wanted, workers, keep
        self.reach_only = reach_only
        self.tried = 0
        self.failure = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the text of the first failure."""
        if report.failed and not self.failure:
            self.failure = str(report.longrepr)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Any) -> bool:
        """In place of pytest's loop."""
        items = {item.nodeid: item for item in session.items}
        records: list[Any] = self._forked(lambda: self._record(items)) or []
        tests: dict[int, list[tuple[float, str]]] = {}
        for name, seconds, holding in records:
            for number in holding:
                tests.setdefault(number, []).append((seconds, name))
        print(f"{len(records)} tests pass and reach {len(tests)} of {len(self.guards.all)} guards")
        for number, found in tests.items():
            self.guards.all[number].seen = len(found)
        if self.reach_only:
            return True

        def attempt(number: int) -> None:
            guard = self.guards.all[number]
            folder = guard.file.partition("/")[0]
            own = f"tests/rewrites/{folder}/"
            order = sorted(tests[number], key=lambda t: (own not in t[1], t[0]))
            found = self._forked(lambda: self._without(number, order, items))
            if found is None:
                found = (order[0][1], "result")
            guard.witness, guard.on = found
            self.tried += 1
            if self.tried % 20 == 0:
                self.keep()
                print(f"{self.tried} tried", file=sys.stderr, flush=True)

        with ThreadPoolExecutor(self.workers) as pool:
            list(pool.map(attempt, [number for number in self.wanted if number in tests]))
        return True

    def _passes(self, item: Any) -> bool:
        self.failure = ""
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return not self.failure

    def _record(self, items: dict[str, Any]) -> list[Any]:
        signal.alarm(0)
        records: list[Any] = []
        for name, item in items.items():
            self.guards.holding.clear()
            started = time.perf_counter()
            if self._passes(item):
                records.append((name, time.perf_counter() - started, sorted(self.guards.holding)))
        return records

    def _without(
        self, number: int, order: list[tuple[float, str]], items: dict[str, Any]
    ) -> tuple[str | None, str]:
        self.guards.off = number
        spent = 0.0
        for seconds, name in order:
            if spent and spent + seconds > AT_MOST:
                break
            spent += seconds
            if not self._passes(items[name]):
                return name, "result" if _is_of_result(self.failure) else "structure"
        return None, ""

    def _forked(self, work: Callable[[], Any]) -> Any:
        """What a forked process finds; None if it crashes or hangs."""
        reading, writing = os.pipe()
        gc.freeze()  # a collection in a child would copy every page
        child = os.fork()
        if child == 0:
            gc.disable()
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            signal.alarm(SECONDS)
            with os.fdopen(writing, "w") as out:
                json.dump(work(), out)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as answer:
            text = answer.read()
        os.waitpid(child, 0)
        return json.loads(text) if text else None


def _is_of_result(failure: str) -> bool:
    """Whether a failed test says that the result is wrong, or that there is none."""
    last = [line for line in failure.splitlines() if line.startswith("E  ")]
    return "assert_within" in failure or not any("assert " in line for line in last)


# --- results -------------------------------------------------------------------------------


def digest(path: Path) -> str:
    """What a file holds, in a few letters."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else ""


def source_of(file: str) -> str:
    """The path of a file of guards, from the root."""
    paths = [f"translate/{folder}/{file}.py" for folder in FOLDERS]
    return next((path for path in paths if (ROOT / path).exists()), paths[0])


def results_of(words: str) -> Path:
    """Where the results of a run are kept."""
    part = re.sub(r"\W+", "-", words).strip("-")
    if len(part) > 80:
        part = f"{part[:60]}-{hashlib.sha256(words.encode()).hexdigest()[:12]}"
    return RESULTS / f"guards{part and '.' + part}.json"


def remembered(guards: Guards) -> list[int]:
    """Give guards the witnesses of earlier runs where nothing changed; the others' numbers."""
    known: dict[tuple[Any, ...], Any] = {}
    for path in RESULTS.glob("guards*.json"):
        held = json.loads(path.read_text())
        same = {file for file, was in held["files"].items() if digest(ROOT / file) == was}
        known |= {
            (entry["file"], entry["function"], entry["line"], entry["text"]): entry
            for entry in held["guards"]
            if entry["witness"]
            and source_of(entry["file"]) in same
            and entry["witness"].partition("::")[0] in same
        }
    open_: list[int] = []
    for number, guard in enumerate(guards.all):
        entry = known.get((guard.file, guard.function, guard.line, guard.text))
        if entry is None:
            open_.append(number)
        else:
            guards.all[number] = Guard(**entry)
    return open_


def save(guards: list[Guard], path: Path) -> None:
    """Write results, with digests of all files that they depend on."""
    files = {source_of(guard.file) for guard in guards}
    files |= {guard.witness.partition("::")[0] for guard in guards if guard.witness}
    held = {
        "files": {file: digest(ROOT / file) for file in sorted(files)},
        "guards": [asdict(guard) for guard in guards],
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(held, indent=1) + "\n")


def table(guards: list[Guard]) -> str:
    """Guards by folder as Markdown, then the survivors by name."""
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
    left = [g for g in guards if not g.witness]
    if left:
        rows += ["", "| survivor | condition | tests in which it holds |", "|---|---|---|"]
        rows += [
            f"| {g.file} `{g.function}` | `{g.text.replace('|', chr(92) + '|')}` | {g.seen} |"
            for g in left
        ]
    return "\n".join(rows)


def main() -> int:
    """Try the guards, print the table; exit status 1 if a guard survives."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tests", nargs="*", default=SUITES)
    parser.add_argument("-k", dest="words", default="", help="files in whose path this is found")
    parser.add_argument("--keep", action="store_true", help="keep witnesses of unchanged files")
    parser.add_argument("--reach", action="store_true", help="switch no guard off")
    parser.add_argument("--report", action="store_true", help="only print the last run's table")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    os.chdir(ROOT)
    path = results_of(asked.words)
    if asked.report:
        found = [Guard(**entry) for entry in json.loads(path.read_text())["guards"]]
    else:
        import torch

        import stepwell.npu_pipelines  # noqa: F401  (what every child needs, before the first fork)

        torch.set_num_threads(1)
        guards = Guards(asked.words)
        wanted = remembered(guards) if asked.keep else list(range(len(guards.all)))
        options = ["-q", "-p", "no:cacheprovider", "--tb=short"]
        trial = Trial(guards, wanted, asked.workers, lambda: save(guards.all, path), asked.reach)
        pytest.main([*options, *asked.tests], plugins=[trial])
        found = guards.all
        if not asked.reach:
            save(found, path)
    print(table(found))
    return 0 if all(guard.witness for guard in found) else 1


if __name__ == "__main__":
    sys.exit(main())
