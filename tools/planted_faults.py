"""Plant faults one at a time, and report which `tools/affected.py` detects, and in what time.

    python tools/planted_faults.py STATE [--faults 30] [--seed 0] [--table]

A fault is one changed operator, number or word in a function of a rewrite, an op or an emitter, in
turn, drawn from a seed. STATE is a folder with a checkout of HEAD and a line of JSON for each
fault, so that an interrupted run continues. An undetected change may be no fault at all (an
operator that makes no difference), so `--whole` runs every test on each of those.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = {
    "rewrite": tuple(
        f"translate/{p}" for p in ("canonicalize", "decompositions", "lowerings", "rewrites")
    ),
    "op": ("dialects",),
    "emitter": ("backends/xnnpack", "backends/tosa", "backends/executorch", "backends/cortex_m"),
}
LIMITS = {"rewrite": 60, "op": 120, "emitter": 240}
"""The CPU seconds that a change of a kind may take."""
LONGEST = max(LIMITS.values())
SUITE = 1800
"""The approximate CPU seconds of all tests."""
UNNOTICED = (0, 5, 6)
"""Exit statuses: no failure, no test selected, no failure within the time limit."""
OTHER: dict[type[ast.cmpop], str] = {
    ast.Lt: ">=", ast.GtE: "<", ast.Gt: "<=", ast.LtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip


def faults_of(path: Path) -> Iterator[tuple[int, int, int, str]]:
    """Yield (line, first and last column, replacement text) of each possible fault of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if node not in function.body and getattr(node, "lineno", 0) < function.body[0].lineno:
                continue
            match node:
                case ast.Compare(left=left, ops=[op], comparators=[right]):
                    if left.end_lineno == right.lineno and type(op) in OTHER:
                        text = f"({ast.unparse(left)}) {OTHER[type(op)]} ({ast.unparse(right)})"
                        if node.end_lineno == node.lineno:
                            yield node.lineno, node.col_offset, node.end_col_offset or 0, text
                case ast.BoolOp(op=op, values=values) if node.end_lineno == node.lineno:
                    word = " or " if isinstance(op, ast.And) else " and "
                    text = "(" + word.join(f"({ast.unparse(value)})" for value in values) + ")"
                    yield node.lineno, node.col_offset, node.end_col_offset or 0, text
                case ast.Constant(value=int(number)) if not isinstance(number, bool):
                    if node.end_lineno == node.lineno:
                        text = str(number + 1)
                        yield node.lineno, node.col_offset, node.end_col_offset or 0, text
                case _:
                    pass


def drawn(seed: int, number: int, tree: Path) -> tuple[str, Path, tuple[int, int, int, str]]:
    """Draw the kind, the file and the place of a fault."""
    draw, kind = random.Random(f"{seed} {number}"), list(KINDS)[number % len(KINDS)]
    paths = [
        path
        for folder in KINDS[kind]
        for path in sorted((tree / folder).rglob("*.py"))
        if "generated" not in str(path) and path.name != "__init__.py"
    ]
    while True:
        path = draw.choice(paths)
        places = list(faults_of(path))
        if places:
            return kind, path, draw.choice(places)


@dataclass(frozen=True)
class Run:
    """The result of a command.

    Attributes:
        status: its exit status; the negated signal number if a signal ended it.
        seconds: CPU seconds, including its children.
        failed: the tests that failed.
        last: the last lines of its standard output.
    """

    status: int
    seconds: float
    failed: list[str]
    last: list[str]


def tried(tree: Path, command: list[str], seconds: int) -> Run:
    """Run a command in a checkout; one that takes more CPU seconds than the limit counts as
    hanging.
    """
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    before = sum(os.times()[2:4])
    ran = subprocess.run(
        command, cwd=tree, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 10)),
    )  # fmt: skip
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.M)
    last = ran.stdout.strip().splitlines()[-5:]
    return Run(ran.returncode, sum(os.times()[2:4]) - before, failed, last)


def one(seed: int, number: int, tree: Path, whole: bool) -> dict[str, object]:
    """Return the result for a fault."""
    kind, path, (line, first, last, text) = drawn(seed, number, tree)
    original = path.read_text(encoding="utf-8")
    rows = original.splitlines(keepends=True)
    row = rows[line - 1].encode()
    was = row[first:last].decode()
    rows[line - 1] = (row[:first] + text.encode() + row[last:]).decode()
    path.write_text("".join(rows), encoding="utf-8")
    begun = time.monotonic()
    noticed_by_all: bool | None = None
    try:
        command = [sys.executable, "tools/affected.py", "HEAD"]
        ran = tried(tree, command, 3 * LONGEST)
        if ran.status in UNNOTICED and whole:
            every = tried(tree, [sys.executable, "-m", "pytest", "-q", "-x"], 2 * SUITE)
            noticed_by_all = every.status not in UNNOTICED
            ran = replace(ran, failed=every.failed)
    finally:
        path.write_text(original, encoding="utf-8")
    return {
        "number": number, "kind": kind, "place": f"{path.relative_to(tree)}:{line}",
        "was": was, "is": text, "status": ran.status, "noticed": ran.status not in UNNOTICED,
        "by": ran.failed[:1], "seconds": round(ran.seconds, 1),
        "wall": round(time.monotonic() - begun), "by the suite": noticed_by_all, "said": ran.last,
    }  # fmt: skip


def main() -> int:
    """Plant the faults that are missing in the state, then print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("state", type=Path)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--whole", action="store_true", help="run every test on undetected faults")
    parser.add_argument(
        "--table", action="store_true", help="print the known results, plant nothing"
    )
    asked = parser.parse_args()
    file, tree = asked.state / f"faults-{asked.seed}.jsonl", asked.state / "faults"
    asked.state.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(row) for row in file.read_text().splitlines()] if file.exists() else []
    if not asked.table:
        if not tree.exists():
            subprocess.run(["git", "worktree", "add", "--detach", str(tree), "HEAD"], check=True)
        # Remove a fault that a killed run left planted.
        subprocess.run(["git", "checkout", "-q", "--", "."], cwd=tree, check=True)
        known = {row["number"] for row in rows}
        for number in range(asked.faults):
            if number not in known:
                rows.append(one(asked.seed, number, tree.resolve(), asked.whole))
                with file.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(rows[-1]) + "\n")
    print("| kind | faults | noticed | not noticed, by the suite | CPU seconds, most (limit) |")
    print("|---|---|---|---|---|")
    for kind, limit in LIMITS.items():
        of = [row for row in rows if row["kind"] == kind]
        noticed = sum(row["noticed"] for row in of)
        missed = sum(bool(row["by the suite"]) for row in of)
        most = max((row["seconds"] for row in of), default=0)
        print(f"| {kind} | {len(of)} | {noticed} | {missed} | {most} ({limit}) |")
    for row in rows:
        if not row["noticed"]:
            place, status = row["place"], row["status"]
            print(f"not noticed: {place}: {row['was']} -> {row['is']} (exit status {status})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
