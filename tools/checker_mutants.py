"""Change the checker of certificates at one place, and see whether its tests notice.

    python tools/checker_mutants.py --count 150 --seed 1      # the survivors, and a table
    python tools/checker_mutants.py --only 'name_of'          # all whose description matches
    python tools/checker_mutants.py --count 150 --page docs/trust.md

The modules are those of the checker, and what it is made of at the levels. A mutant is killed if a
test of `TESTS` fails on it, or takes longer than the limit. Each runs in a forked process. Mutants
in `EQUIVALENT` decide what the module does, for the reason given there, and are not counted.
"""

import argparse
import ast
import copy
import os
import re
import signal
import sys
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest
from versions import between

HOME = Path(__file__).resolve().parents[1]
PACKAGE = "validation.certificates.checker"
PARTS = {"observed": "ir", "weight_descriptions": "ir", "op_text": "dialects",
         "expressions": PACKAGE, "statements": PACKAGE, "check": PACKAGE}  # fmt: skip
"""The modules and their packages, each after those that it imports."""
TESTS = "ops expressions small_texts weights checker forgeries certificates".split()
SWAPPED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
           ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
           ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add,
           ast.And: ast.Or, ast.Or: ast.And}  # fmt: skip
LINES = {part: (HOME / "src/stepwell" / package.replace(".", "/") / f"{part}.py").read_text()
         .splitlines() for part, package in PARTS.items()}  # fmt: skip
SOURCES = {part: ast.parse("\n".join(lines)) for part, lines in LINES.items()}
LIMIT = "a limit of time or memory; another one decides the same of what ends"
EQUIVALENT = {
    ("expressions", "source, found = Random(seed), 4"): ("4 → 5", "neither passes the test below"),
    ("expressions", "@lru_cache(1 << 16)"): ("1 → 2|16 → 17", LIMIT),
    ("statements", "MOST_STEPS = 1 << 16  # A loop in a statement may not end."): (
        "1 → 2|16 → 17", LIMIT),
    ("check", "MOST_ELEMENTS = 1 << 28  # Of all values and weights of a statement."): (
        "1 → 2|28 → 29", LIMIT),
    ("statements", "for value, result in zip(results, op.results, strict=True):"): (
        "True → False", "the caller's zip is strict"),
    ("statements", "return [torch.where(test, one, other) for one, other in zip(*ways,"): (
        "True → False", "both branches give the op's results"),
    ("check", 'same = pairs and entry.by == "follows" and self.graph.are_equal(*zip(*pairs'): (
        "True → False", "pairs are of two"),
    ("check", "numbers.update(zip(func.body.block.args, self.inputs[name], strict=True))"): (
        "True → False", "the signatures are equal"),
    ("check", "numbers.update(zip(op.results, self.next(effects, made), strict=True))"): (
        "True → False", "the texts of both ops are equal"),
}  # fmt: skip
"""By module and the beginning of a line: which changes (a pattern) decide the same, and why."""


def changes(tree: ast.Module) -> list[tuple[int, Any]]:
    """Return the changes of a module: the number of a node, and what is changed in it."""
    found: list[tuple[int, Any]] = []
    for at, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
            found.append((at, "ops"))
        elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPPED:
            found.append((at, "op"))
        elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
            found.append((at, "constant"))
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            found.append((at, "test"))
        elif isinstance(node, ast.Raise):
            found.append((at, "raise"))
        elif isinstance(node, ast.FunctionDef):
            begin = ast.get_docstring(node) is not None
            found += ((at, n) for n, step in enumerate(node.body) if n >= begin
                      and not isinstance(step, ast.FunctionDef | ast.Return))  # fmt: skip
    return found


def mutant(tree: ast.Module, change: tuple[int, Any]) -> tuple[int, str, ast.Module]:
    """Return the line, a description and a copy of a module with one change."""
    tree = copy.deepcopy(tree)
    node: Any = list(ast.walk(tree))[change[0]]
    before = node
    said = ast.unparse(getattr(node, "test", node)) if change[1] != "raise" else ast.unparse(node)
    match change[1]:
        case "ops":
            node.ops[0] = SWAPPED[type(node.ops[0])]()
        case "op":
            node.op = SWAPPED[type(node.op)]()
        case "constant":
            node.value = not node.value if isinstance(node.value, bool) else node.value + 1
        case "test":
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case "raise":
            node.exc, node.cause = ast.Constant(None), None
            for parent in ast.walk(tree):
                for block in ("body", "orelse"):
                    held = getattr(parent, block, None)
                    if isinstance(held, list) and node in held:
                        held[held.index(node)] = ast.Pass()
        case number:
            before = node.body[number]
            said, node.body[number] = ast.unparse(before), ast.Pass()
    after = "pass" if change[1] == "raise" or isinstance(change[1], int) else ast.unparse(
        getattr(node, "test", node))  # fmt: skip
    said = f"{said} → {after}" if after != "pass" else f"without {said.splitlines()[0]}"
    return before.lineno, said, ast.fix_missing_locations(tree)


def install(part: str, tree: ast.Module) -> None:
    """Run a changed module, and all after it, in place of those that were imported."""
    for name in list(PARTS)[list(PARTS).index(part) :]:
        module = import_module(f"stepwell.{PARTS[name]}.{name}")
        before = {id(value): key for key, value in vars(module).items() if callable(value)}
        made = tree if name == part else SOURCES[name]
        held = list(vars(module).values())  # So that no number of an object is used again.
        exec(compile(made, str(module.__file__), "exec"), vars(module))
        for other in list(sys.modules.values()):
            for key, value in list(vars(other).items()):
                if id(value) in before and getattr(value, "__module__", "") == module.__name__:
                    vars(other)[key] = vars(module)[before[id(value)]]
        del held


def run_tests() -> int:
    """Return the exit code of the tests up to the first failure, without output."""
    paths = [str(HOME / f"tests/certificates/test_{name}.py") for name in TESTS]
    options = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-k", "not imports_the_levels"]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        return int(pytest.main([*options, "--rootdir", str(HOME), *paths]))


def survives(part: str, tree: ast.Module, seconds: int) -> bool:
    """Whether no test notices a changed module; in a forked process."""
    if not (child := os.fork()):
        signal.alarm(seconds)
        code = 1
        try:
            install(part, tree)
            code = run_tests()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def main() -> None:
    """Draw mutants, run each, and print how many are killed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1 << 20, help="how many, of all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="a pattern of the description, with its line")
    parser.add_argument("--seconds", type=int, default=240, help="the limit of a mutant")
    parser.add_argument("--page", type=Path, help="a page for the table")
    given = parser.parse_args()
    os.chdir(HOME)
    made: list[tuple[str, str, ast.Module]] = []
    equivalent = list[tuple[str, str]]()
    for part, tree in SOURCES.items():
        for line, said, changed in (mutant(tree, change) for change in changes(tree)):
            where = f"{part}.py:{line}: {said}"
            text = LINES[part][line - 1].strip()
            if same := [key for key, (pattern, _) in EQUIVALENT.items() if key[0] == part
                        and text.startswith(key[1]) and re.fullmatch(pattern, said)]:  # fmt: skip
                equivalent += same
            elif re.search(given.only, where):
                made.append((part, where, changed))
    assert not (gone := EQUIVALENT.keys() - {*equivalent}), gone
    chosen = Random(given.seed).sample(made, min(given.count, len(made)))
    assert run_tests() == 0, "the tests fail without a change"
    first = next(iter(PARTS))  # All modules are after it.
    assert survives(first, SOURCES[first], given.seconds), "a module without a change is killed"
    print(f"{len(chosen)} of {len(made)} mutants, {len(equivalent)} equivalent ones", flush=True)
    counts = {part: Counter[bool]() for part in PARTS}
    for part, where, tree in chosen:
        counts[part][alive := survives(part, tree, given.seconds)] += 1
        if alive:
            print(f"survived: {where}", flush=True)
    rows = {f"`{part}.py`": each for part, each in counts.items()}
    rows["all"] = sum(counts.values(), Counter[bool]())
    share = rows["all"][False] / rows["all"].total()
    lines = [f"`--count {len(chosen)} --seed {given.seed}`: {share:.1%} of {len(chosen)} mutants "
             f"(of {len(made)}; {len(equivalent)} more decide the same) are killed.", "",
             "| module | mutants | killed | survived |", "|---|---|---|---|"]  # fmt: skip
    lines += [f"| {n} | {c.total()} | {c[False]} | {c[True]} |" for n, c in rows.items()]
    print(*lines, sep="\n")
    if given.page:
        between(given.page, "mutants of the checker", lines)


if __name__ == "__main__":
    main()
