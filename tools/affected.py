"""Run the tests that a change affects, nearest first: `make affected`.

    python tools/affected.py [COMMIT] [--list] [--seconds N]

The change is the difference from COMMIT (default `main`), including uncommitted work. For each
changed file the tool collects the functions, classes, rules and ops that contain changed lines, and
their uses in the file. The distance of a test is

    0  if a test's id names one of these, or its file has the changed file's name,
    1  if its file names one of them,
    2  if its file imports the changed file,
    3  if it is near a file that imports the changed names (1 or 2, one step on).

The check of kept proofs runs after every change of a rewrite.

Test ids matter in files that try all rewrites or ops, one per test; of such files only the matching
tests run. A time limit ends the run, even within a test: a minute of CPU for a rewrite, two for an
op, four for an emitter, including imports and all processes that a test starts. The tool reports
the tests that it left out. Status 6 means that no test failed but not all were run.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "tools")]

import check_imports  # noqa: E402

SECONDS = {"translate": 60, "dialects": 120}
"""CPU seconds by the folder of the change; several kinds take the longest."""
LONGEST = 240
OF_ALL = (
    "tests/rewrites/test_documented_examples.py",
    "tests/contracts/test_contracts.py",
    "tests/axes/test_axis_maps.py",
    "tests/axes/test_means.py",
)
"""Files with a test for each rewrite, or for each op."""
KEPT = "tests/rules/test_known.py"
"""Checks in a second whether kept proofs belong to the current rules and functions."""
RULE = re.compile(r"^rule ([\w-]+)", re.M)
OP = re.compile(r'^    name(?:: [^=]+)? = "([\w.-]+)"', re.M)


@dataclass
class Change:
    """The change of one file.

    Attributes:
        path: the file, relative to the root.
        names: functions, classes, rules and ops that contain changed lines.
    """

    path: Path
    names: set[str] = field(default_factory=set[str])

    @property
    def words(self) -> set[str]:
        """The names in all spellings of tests: `FoldKernelSum`, `fold_kernel_sum`,
        `fold-kernel-sum`.
        """
        spelled = {self.path.stem} if self.path.stem != "__init__" else set[str]()
        for name in self.names:
            snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
            spelled |= {name, snake, snake.replace("_", "-"), snake.replace("-", "_")}
        return {word for word in spelled if len(word) > 3}


def git(*arguments: str) -> str:
    """Return git's output."""
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def changes(commit: str) -> list[Change]:
    """Return the differences from a commit, with the names on the changed lines."""
    base = git("merge-base", commit, "HEAD").strip()
    lines: dict[Path, set[int]] = {}
    path = Path()
    for line in git("diff", "-U0", base, "--", "*.py").splitlines():
        if line.startswith("+++ "):
            path = Path(line[6:])
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))?", line):
            start, count = int(match[1]), int(match[2] or 1)
            lines.setdefault(path, set()).update(range(start, start + max(count, 1)))
    for name in git("ls-files", "--others", "--exclude-standard", "*.py").split():
        lines[Path(name)] = set(range(1, 1 << 20))
    package = (*check_imports.ROOTS, "src")
    return [
        Change(path, names_at(path, at) if path.parts[0] in package else set())
        for path, at in lines.items()
    ]


def names_at(path: Path, lines: set[int]) -> set[str]:
    """Return the definitions in a file that contain some lines, and those that use them."""
    if not (ROOT / path).exists():
        return set()
    text = (ROOT / path).read_text(encoding="utf-8")
    tree = ast.parse(text)
    definitions = {
        name: node for node in tree.body for name in defined(node) if not isinstance(node, ast.Expr)
    }
    names = {
        name
        for name, node in definitions.items()
        if any(_first(node) <= line <= (node.end_lineno or node.lineno) for line in lines)
    }
    size = -1
    while size != len(names):  # A user of a changed name changes its behavior, too.
        size = len(names)
        names |= {
            name
            for name, node in definitions.items()
            if any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node))
        }
    rows = text.splitlines()
    for line in lines & set(range(1, len(rows) + 1)):
        above = RULE.findall("\n".join(rows[:line]))
        names |= set(above[-1:])
    for name in list(names):
        node = definitions.get(name)
        if isinstance(node, ast.ClassDef):
            names |= set(OP.findall("\n".join(rows[node.lineno - 1 : node.end_lineno])))
    return names


def _first(node: ast.stmt) -> int:
    """Return the first line of a definition, including its decorators."""
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])


def defined(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module binds."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case _:
            pass


@cache
def imports(path: Path) -> frozenset[str]:
    """Return every name that a file imports, and the modules above it."""
    full = {each.name for each in check_imports.imports_of(ROOT / path, "tests.x")}
    return frozenset(full | {name.rpartition(".")[0] for name in full})


def importers(change: Change) -> list[Change]:
    """Return the files that import a changed name, with its users in them."""
    module = check_imports.module_name(change.path)
    users: list[Change] = []
    for path in check_imports.source_files(ROOT):
        taken = {name.rpartition(".")[2] for name in imports(path) if name.startswith(module + ".")}
        if not (taken & change.names) and module not in imports(path):
            continue
        text = (ROOT / path).read_text(encoding="utf-8")
        wanted = (taken & change.names) or {change.path.stem}
        lines = {
            number
            for number, line in enumerate(text.splitlines(), 1)
            if not line.startswith(("from ", "import "))
            and any(re.search(rf"\b{re.escape(word)}\b", line) for word in wanted)
        }
        users.append(Change(path, names_at(path, lines)))
    return users


def near(change: Change, test: Path, text: str) -> int | None:
    """Return the distance of a test file from a change; None if it is unrelated."""
    if test == change.path or test.stem == f"test_{change.path.stem}":
        return 0
    if any(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) for word in change.words):
        return 1
    if change.path.parts[0] not in ("tests", "tools", "bench", "examples"):
        return 2 if check_imports.module_name(change.path) in imports(test) else None
    return 2 if change.path.stem in {name.rpartition(".")[2] for name in imports(test)} else None


def selected(changed: Iterable[Change]) -> dict[Path, int]:
    """Return the test files that changes affect, with their distances."""
    changed = list(changed)
    package = [c for c in changed if c.path.parts[0] in (*check_imports.ROOTS, "src")]
    further = [user for change in package for user in importers(change)]
    files: dict[Path, int] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        test, text = path.relative_to(ROOT), path.read_text(encoding="utf-8")
        places = [place for c in changed if (place := near(c, test, text)) is not None]
        places += [3 for user in further if near(user, test, text) in (0, 1)]
        if str(test) in OF_ALL:
            places.append(3)
        if str(test) == KEPT and any(c.path.parts[0] == "translate" for c in changed):
            places.append(1)
        if places:
            files[test] = min(places)
    return files


def spent() -> float:
    """Return the CPU seconds of this process and its descendants, including those it has waited
    for.
    """
    rows: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # The process has ended.
            continue
        rows[int(path.parent.name)] = [int(fields[1]), *map(int, fields[11:15])]
    below, ticks = {os.getpid()}, sum(rows[os.getpid()][1:])
    while more := {process for process, row in rows.items() if row[0] in below} - below:
        below |= more
        ticks += sum(sum(rows[process][1:]) for process in more)
    return ticks / os.sysconf("SC_CLK_TCK")


@dataclass(eq=False)  # pytest hashes its plug-ins.
class Selection:
    """The pytest plug-in: nearest tests first, until the time limit."""

    files: dict[Path, int]
    words: set[str]
    seconds: float
    ran: int = 0
    left: int = 0
    is_cut: bool = False
    """Whether the time limit was reached in a test or during collection."""

    @property
    def is_over(self) -> bool:
        """Whether the time limit is reached."""
        return self.is_cut or spent() > self.seconds

    def begin(self) -> None:
        """Start the watchdog, which ends the run at the time limit."""

        def end(*_: object) -> None:
            raise KeyboardInterrupt

        def watch() -> None:
            while not self.is_over:
                time.sleep(0.5)
            self.is_cut = True
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

        signal.signal(signal.SIGUSR1, end)
        threading.Thread(target=watch, daemon=True).start()

    def place(self, item: Any) -> int | None:
        """Return the distance of a test; None if it is not selected."""
        path = Path(item.path).relative_to(ROOT)
        if any(word in item.nodeid for word in self.words):
            return 0
        return None if str(path) in OF_ALL else self.files.get(path)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Sort by distance, and by file within one distance."""
        placed = [(place, item) for item in items if (place := self.place(item)) is not None]
        items[:] = [item for _, item in sorted(placed, key=lambda pair: pair[0])]

    def pytest_runtest_protocol(self) -> bool | None:
        """Skip tests after the time limit."""
        return True if self.is_over else None

    def pytest_collection_finish(self, session: Any) -> None:
        """Record the tests that have not run yet."""
        self.left += len(session.items)

    def pytest_runtest_logfinish(self) -> None:
        """Count a test that has run."""
        self.ran, self.left = self.ran + 1, self.left - 1


def main() -> int:
    """Select and run tests."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commit", nargs="?", default="main")
    parser.add_argument(
        "--list", action="store_true", help="list the files and distances, run nothing"
    )
    parser.add_argument("--seconds", type=float, help="CPU seconds after which no test begins")
    parsed = parser.parse_args()
    changed = changes(parsed.commit)
    files = selected(changed)
    if parsed.list or not files:
        for path, place in sorted(files.items(), key=lambda pair: (pair[1], pair[0])):
            print(place, path)
        return 0
    import pytest

    seconds = parsed.seconds or max(SECONDS.get(c.path.parts[0], LONGEST) for c in changed)
    words = {word for change in changed for word in change.words}
    selection = Selection(files, words, seconds)
    selection.begin()
    code, begun = 0, 0
    for places in ((0, 1), (2, 3)):  # Distant files are not even collected if a near test fails.
        paths = sorted(
            str(path)
            for path, place in files.items()
            if (1 if str(path) in OF_ALL else place) in places
        )
        if not paths or selection.is_over:
            continue
        begun += len(paths)
        try:
            code = int(pytest.main(["-q", "-x", *paths], plugins=[selection]))
        except KeyboardInterrupt:  # Between tests.
            code = int(pytest.ExitCode.INTERRUPTED)
        if selection.is_cut or code not in (0, 5):  # 5: no test of these files is selected.
            break
    left = f"{selection.left} tests and {len(files) - begun} files left out"
    print(f"{selection.ran} tests of {begun} files; {left}")
    if code in (0, 5) or (selection.is_cut and code == pytest.ExitCode.INTERRUPTED):
        return 6 if selection.left or begun < len(files) else 0
    return code


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
