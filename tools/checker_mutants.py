"""Change the checker of certificates at one place, and see whether a test notices.

    python tools/checker_mutants.py --count 150 --seed 1        # a table, and the survivors

A mutant is killed if an honest certificate no longer gives the same figures, a statement of
`statement_cases` is decided otherwise, a certificate that was tampered with is accepted, or the
time limit is exceeded. Each runs in a forked process.
"""

import argparse
import ast
import copy
import os
import signal
import sys
import time
from collections import Counter
from importlib import import_module
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "notation"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "certificates"))

from honest import PROGRAMS, honest
from statement_cases import CASES, readings
from tampered_programs import sample
from tampering import applied

from stepwell.ir.diagnostics import StepwellError
from stepwell.validation.certificates.application import by_hash

HOME = Path(__file__).resolve().parents[1]
PARTS = ("expressions", "statements", "check")
PACKAGE = "stepwell.validation.certificates.checker"
SWAPPED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
           ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
           ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add,
           ast.And: ast.Or, ast.Or: ast.And}  # fmt: skip


def changes(tree: ast.Module) -> list[tuple[str, Any]]:
    """Return the mutants of a module: what is changed, and a function that changes a copy."""
    found: list[tuple[str, Any]] = []
    for at, node in enumerate(ast.walk(tree)):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
            found.append((f"{line}: comparison", (at, "ops")))
        elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPPED:
            found.append((f"{line}: operator", (at, "op")))
        elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
            found.append((f"{line}: constant", (at, "constant")))
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            found.append((f"{line}: condition", (at, "test")))
        if isinstance(node, ast.FunctionDef):
            for number, step in enumerate(node.body):
                if not isinstance(step, ast.FunctionDef | ast.Return) and number:
                    found.append((f"{step.lineno}: statement", (at, number)))
        if isinstance(node, ast.Raise):
            found.append((f"{line}: exception", (at, "raise")))
    return found


def mutant(tree: ast.Module, change: tuple[int, Any]) -> ast.Module:
    """Return a copy of a module with one change."""
    tree = copy.deepcopy(tree)
    node: Any = list(ast.walk(tree))[change[0]]
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
            node.body[number] = ast.Pass()
    return ast.fix_missing_locations(tree)


def figures(name: str) -> Any:
    """Return what the checker says of an honest certificate."""
    case, check = honest(name), import_module(f"{PACKAGE}.check").check
    found = check(case.certificate.to_json(), 5, case.program, case.source)
    assumed = [number for number, _, _ in found.assumptions]
    return found.proved, found.implied, assumed, found.recipes, len(found.dropped), found.faults


def is_refused(given: Any) -> bool:
    """Whether the checker alone refuses a certificate."""
    try:
        text = given.data.decode()
        check = import_module(f"{PACKAGE}.check").check
        return bool(check(text, 5, given.program, given.source).faults)
    except (StepwellError, UnicodeDecodeError):
        return True


def survives(trees: dict[str, ast.Module], known: Any, tampered: list[Any]) -> bool:
    """Whether no test notices that modules of the checker are others; in a forked process."""
    for part in PARTS:
        module = import_module(f"{PACKAGE}.{part}")
        exec(compile(trees[part], str(module.__file__), "exec"), module.__dict__)
    for part in ("statement_cases", "stepwell.validation.certificates.exhaustive"):
        for name in ("decide", "Undecided"):
            if hasattr(sys.modules[part], name):
                held = getattr(sys.modules[f"{PACKAGE}.statements"], name)
                setattr(sys.modules[part], name, held)
    same = all(readings(CASES[name]) == known["cases"][name] for name in CASES)
    same = same and all(figures(name) == known["honest"][name] for name in PROGRAMS)
    return same and all(map(is_refused, tampered))


def main() -> None:
    """Draw mutants, run each, and print how many are killed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=150, help="how many, of all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tampered", type=int, default=200, help="certificates of each mutant")
    parser.add_argument("--seconds", type=int, default=240, help="the limit of a mutant")
    given = parser.parse_args()
    by_hash()  # The recipes of weights.
    home = HOME / "src" / PACKAGE.replace(".", "/")
    trees = {part: ast.parse((home / f"{part}.py").read_text()) for part in PARTS}
    all_ = [(part, *each) for part in PARTS for each in changes(trees[part])]
    chosen = Random(given.seed).sample(all_, min(given.count, len(all_)))
    rows = list(sample(every=False))
    inputs = (applied(name, honest(case)) for name, case in Random(2).sample(rows, len(rows)))
    refused = (each for each in inputs if each is not None and is_refused(each))
    tampered = list(islice(refused, given.tampered))
    cases = {name: readings(CASES[name]) for name in CASES}
    known = {"honest": {name: figures(name) for name in PROGRAMS}, "cases": cases}
    print(f"{len(all_)} mutants, {len(tampered)} tampered certificates", flush=True)
    counts = {part: Counter[str]() for part in PARTS}
    for part, said, change in chosen:
        begun, child = time.time(), os.fork()
        if not child:
            signal.alarm(given.seconds)
            try:
                os._exit(survives({**trees, part: mutant(trees[part], change)}, known, tampered))
            except BaseException:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        is_alive = os.waitstatus_to_exitcode(status) == 1
        counts[part]["survived" if is_alive else "killed"] += 1
        if is_alive:
            print(f"survived: {part}.py:{said} ({time.time() - begun:.0f} s)", flush=True)
    for part, each in counts.items():
        print(f"| `{part}.py` | {each.total()} | {each['killed']} | {each['survived']} |")


if __name__ == "__main__":
    main()
