"""Remove one guard of a rewrite at a time; a test must fail.

A guard is a condition under which a rewrite leaves an op alone: `if …: return None` or
`return Refusal(…)`, each side of an `or` for itself, and `return None if … else Refusal(…)`.
With the condition gone, the tests of that rewrite (`tests/rewrites/<dialect>/test_<name>.py` and
its documented example) run in a forked process; a guard whose removal nothing notices survives.

    python tools/guards.py                 every rewrite that has a test file
    python tools/guards.py aten/merge      those whose path holds the words
    python tools/guards.py --markdown      the table as Markdown

Exit status 1 if a guard survives.
"""

from __future__ import annotations

import ast
import copy
import importlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REWRITES = ROOT / "translate" / "rewrites"
TESTS = ROOT / "tests" / "rewrites"
SECONDS = 180


@dataclass(frozen=True)
class Guard:
    """One condition: where it stands, and the tree of its module without it."""

    function: str
    line: int
    text: str
    tree: ast.Module


@dataclass
class Tally:
    """What became of the guards of one rewrite."""

    name: str
    guards: int = 0
    caught: int = 0
    survivors: list[str] = field(default_factory=list[str])
    note: str = ""


def leaves_alone(node: ast.expr | None) -> bool:
    """Whether a returned expression says that the op is left alone."""
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "Refusal"
    return isinstance(node, ast.Name) and node.id == "refusal"


def guards_of(source: str) -> Iterator[Guard]:
    """Every guard of a module's functions and methods, each with the tree that lacks it."""
    tree = ast.parse(source)
    functions = [
        (f"{owner.name}.{f.name}" if isinstance(owner, ast.ClassDef) else f.name, f)
        for owner in [tree, *(n for n in tree.body if isinstance(n, ast.ClassDef))]
        for f in owner.body
        if isinstance(f, ast.FunctionDef)
    ]
    for name, function in functions:
        if name.endswith(".build"):
            continue
        for path, node in _walk(function):
            yield from _without(tree, function, name, path, node, source)


def _walk(function: ast.FunctionDef) -> Iterator[tuple[int, ast.stmt]]:
    for index, node in enumerate(ast.walk(function)):
        if isinstance(node, ast.If | ast.Return):
            yield index, node


def _without(
    tree: ast.Module, function: ast.FunctionDef, name: str, index: int, node: ast.stmt, source: str
) -> Iterator[Guard]:
    def copied() -> tuple[ast.Module, Any]:
        fresh = copy.deepcopy(tree)
        twin = next(
            f
            for f in ast.walk(fresh)
            if isinstance(f, ast.FunctionDef) and f.lineno == function.lineno
        )
        return fresh, list(ast.walk(twin))[index]

    if isinstance(node, ast.If) and len(node.body) == 1 and isinstance(node.body[0], ast.Return):
        if not leaves_alone(node.body[0].value):
            return
        sides = node.test.values if _is_or(node.test) else [node.test]
        for side, condition in enumerate(sides):
            fresh, twin = copied()
            if _is_or(node.test):
                twin.test.values[side] = ast.copy_location(ast.Constant(False), condition)
            else:
                twin.test = ast.copy_location(ast.Constant(False), condition)
            text = ast.get_source_segment(source, condition) or ""
            yield Guard(name, condition.lineno, " ".join(text.split()), fresh)
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.IfExp):
        chosen = node.value
        refuses = [
            isinstance(side, ast.Call) and leaves_alone(side)
            for side in (chosen.body, chosen.orelse)
        ]
        if refuses in ([True, False], [False, True]):
            fresh, twin = copied()
            twin.value = twin.value.orelse if refuses[0] else twin.value.body
            text = ast.get_source_segment(source, chosen.test) or ""
            yield Guard(name, chosen.lineno, " ".join(text.split()), fresh)


def _is_or(test: ast.expr) -> Any:
    return isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or)


def code_of(code: CodeType, qualified: str) -> CodeType:
    """The code object of a function or method inside a module's."""
    for part in qualified.split("."):
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == part)
    return code


def apply(module: Any, guard: Guard) -> None:
    """Let the live function run without the guard, wherever it was imported to."""
    mutant = compile(ast.fix_missing_locations(guard.tree), module.__file__, "exec")
    found: Any = module
    for part in guard.function.split("."):
        found = vars(found)[part]
    assert isinstance(found, FunctionType)
    found.__code__ = code_of(mutant, guard.function)


def passes(arguments: list[str], module: Any, guard: Guard | None) -> bool:
    """Whether the tests pass in a forked process, without a guard if one is given."""
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        signal.alarm(SECONDS)
        try:
            import pytest

            if guard is not None:
                apply(module, guard)
            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *arguments]))
        except BaseException:
            code = 1
        os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def tests_of(path: Path) -> list[str] | None:
    """What to run for a rewrite, None if it has no test file."""
    folder, name = path.parent.name, path.stem
    own = TESTS / folder / f"test_{name}.py"
    if not own.exists():
        return None
    example = "test_documented_examples.py::test_the_documented_before_becomes_the_documented_after"
    return [str(own), f"{TESTS / example}[{folder}.{name}]"]


def try_all(wanted: str) -> list[Tally]:
    """Every guard of every rewrite whose path holds `wanted`."""
    tallies: list[Tally] = []
    for path in sorted(REWRITES.rglob("*.py")):
        name = f"{path.parent.name}/{path.stem}"
        arguments = tests_of(path)
        if path.stem == "__init__" or wanted not in name or arguments is None:
            continue
        module = importlib.import_module(f"stepwell.translate.rewrites.{name.replace('/', '.')}")
        tally = Tally(name)
        tallies.append(tally)
        if not passes(arguments, module, None):
            tally.note = "its tests fail as it is"
            continue
        started = time.perf_counter()
        for guard in guards_of(path.read_text()):
            tally.guards += 1
            if passes(arguments, module, guard):
                tally.survivors.append(f"{guard.function}:{guard.line}: {guard.text}")
            else:
                tally.caught += 1
        seconds = time.perf_counter() - started
        print(
            f"{name:44} {tally.caught:3} of {tally.guards:3} caught  {seconds:6.1f} s", flush=True
        )
        for survivor in tally.survivors:
            print(f"    survives: {survivor}", flush=True)
    return tallies


def markdown(tallies: list[Tally]) -> str:
    """The table for docs/."""
    rows = ["| rewrite | guards | caught | survivors |", "|---|---|---|---|"]
    for tally in tallies:
        left = "<br>".join(f"`{s}`".replace("|", "\\|") for s in tally.survivors) or tally.note
        rows.append(f"| {tally.name} | {tally.guards} | {tally.caught} | {left} |")
    guards, caught = sum(t.guards for t in tallies), sum(t.caught for t in tallies)
    rows.append(f"| **all** | **{guards}** | **{caught}** | |")
    return "\n".join(rows)


def main() -> int:
    """Print the tables; exit status 1 if a guard survives."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    os.chdir(ROOT)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import hypothesis  # noqa: F401  (what every child needs is loaded before the first fork)
    import pytest  # noqa: F401
    import torch

    import stepwell.pipelines  # noqa: F401

    torch.set_num_threads(1)
    tallies = try_all(words[0] if words else "")
    if "--markdown" in sys.argv:
        print(markdown(tallies))
    guards, caught = sum(t.guards for t in tallies), sum(t.caught for t in tallies)
    print(f"{caught} of {guards} guards caught")
    return 0 if caught == guards else 1


if __name__ == "__main__":
    sys.exit(main())
