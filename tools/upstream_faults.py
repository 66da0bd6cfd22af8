"""Faults of other tools: run each reproduction and report its current result.

    python tools/upstream_faults.py                          # all: still failing, or fixed
    python tools/upstream_faults.py xnnpack.py               # one file's, or a fault by its name
    python tools/upstream_faults.py sum_of_float64 --script  # a standalone script, to be filed
    python tools/upstream_faults.py --state ROWS.jsonl --page docs/upstream.md   # write tables

A reproduction is a function in `tools/faults` that calls only the other tool and PyTorch, and fails
while the fault exists. Each runs in a process of its own, forked from one that has imported what
its file imports; a signal counts as a failure, too.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.metadata
import json
import multiprocessing
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

FOLDER = Path(__file__).parent / "faults"
ROOT = FOLDER.parents[1]
SECONDS = 300
DISTRIBUTIONS = {
    "portable_kernels": ("executorch", "torch"),
    "exir": ("executorch", "torch"),
    "xnnpack": ("executorch", "torch"),
    "cortex_m": ("executorch", "torch", "torchao"),
    "tosa_tools": ("tosa-tools",),
    "vela": ("ethos-u-vela", "tosa-tools"),
    "iree": ("iree-base-compiler", "iree-base-runtime"),
    "litert": ("litert-torch", "ai-edge-litert", "torch"),
    "pytorch": ("torch",),
}
"""A file's name and the tools that it is about; the first has the fault."""
SHARED = "from tools.faults.calling import Of\n"
BEGIN, END = "<!-- faults -->", "<!-- /faults -->"


@dataclass(frozen=True)
class Row:
    """The result of a reproduction.

    Attributes:
        file, name: where it is defined.
        title: what is wrong, in a sentence.
        outcome: `fails`, `dies`, `mended`, or `absent` if its tool is not installed.
        said: the error, or the signal.
        versions: the versions of the tools.
    """

    file: str
    name: str
    title: str
    outcome: str
    said: str
    versions: str


def faults(file: Path) -> Iterator[tuple[str, str]]:
    """Yield names and titles of a file's faults: its functions without parameters."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and not node.args.args and not node.args.vararg:
            yield node.name, (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")


def script(file: Path, name: str) -> str:
    """Return the source of a file with only one of its faults, which it calls."""
    text = file.read_text(encoding="utf-8")
    lines, tree = text.splitlines(), ast.parse(text)
    bodies = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    first = min(bodies[each].lineno for each, _ in faults(file))
    lead = "\n".join(lines[: first - 1]).rstrip()
    if SHARED in lead:
        shared = (FOLDER / "calling.py").read_text(encoding="utf-8")
        lead = f"{shared}\n\n" + lead.replace(SHARED, "")
    body = "\n".join(lines[bodies[name].lineno - 1 : bodies[name].end_lineno])
    return f"{lead}\n\n\n{body}\n\n\n{name}()\n"


def _call(function: FunctionType, pipe: Any) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1), os.dup2(nowhere, 2)
    try:
        function()
    except BaseException as error:
        lines = str(error).strip().splitlines() or [""]
        pipe.send(("fails", f"{type(error).__name__}: {lines[0]}"))
    else:
        pipe.send(("mended", ""))


def tried(function: FunctionType) -> tuple[str, str]:
    """Run a fault in a process of its own and return its result."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_call, args=(function, there))
    child.start()
    there.close()
    try:
        answer = here.recv() if here.poll(SECONDS) else ("fails", f"no end in {SECONDS} s")
    except EOFError:
        child.join()
        code = child.exitcode or 0
        answer = ("dies", signal.Signals(-code).name if code < 0 else f"exit code {code}")
    child.kill()
    child.join()
    return answer


def versions(file: str) -> str:
    """Return the versions of the tools that a file is about."""
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in DISTRIBUTIONS[file])


def rows(asked: list[str]) -> Iterator[Row]:
    """Yield the selected faults one by one."""
    for file in (FOLDER / f"{stem}.py" for stem in DISTRIBUTIONS):
        if not file.exists():
            continue
        named = [
            (name, title)
            for name, title in faults(file)
            if not asked or file.name in asked or name in asked
        ]
        if not named:
            continue
        sys.path[:0] = [] if str(ROOT) in sys.path else [str(ROOT)]
        module: ModuleType | None
        try:
            module, known = (
                importlib.import_module(f"tools.faults.{file.stem}"),
                versions(file.stem),
            )
        except ImportError as error:
            module, known = None, str(error)
        for name, title in named:
            outcome, said = tried(getattr(module, name)) if module else ("absent", known)
            yield Row(file.stem, name, title, outcome, said, known if module else "")


def table(results: list[Row]) -> str:
    """Render one Markdown table for each tool."""
    parts: list[str] = []
    total = 0
    for stem in DISTRIBUTIONS:
        file = FOLDER / f"{stem}.py"
        titles = dict(faults(file)) if file.exists() else {}
        shown = [row for row in results if row.file == stem and row.name in titles]
        shown = [row for row in shown if row.outcome in ("fails", "dies")]
        if not shown:
            continue
        total += len(shown)
        lead = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        parts += [f"### {lead.splitlines()[0].rstrip('.')}", f"{shown[0].versions}", ""]
        parts += ["| fault | what it does | name |", "|---|---|---|"]
        for row in shown:
            said = re.sub(r"\s+", " ", row.said).removeprefix("AssertionError: ")
            said = re.sub(r"/\S*/(site-packages/)?", "", said[:110])
            said = said.replace("|", "\\|").replace("<", "&lt;")
            parts.append(f"| {titles[row.name]} | {said} | `{row.name}` |")
        parts.append("")
    return f"{total} faults.\n\n" + "\n".join(parts)


def main() -> None:
    """Parse the command line, run, print or write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("asked", nargs="*", help="files or names of faults; all if none")
    parser.add_argument("--script", action="store_true", help="print a script of its own")
    parser.add_argument("--state", type=Path, help="what other environments found, and this one")
    parser.add_argument("--page", type=Path, help="whose tables are written")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    if given.script:
        for file in FOLDER.glob("*.py"):
            for name, _ in faults(file):
                if name in given.asked:
                    print(script(file, name), end="")
        return
    results: dict[tuple[str, str], Row] = {}
    if given.state and given.state.exists():
        for line in given.state.read_text().splitlines():
            row = Row(**json.loads(line))
            results[row.file, row.name] = row
    for row in rows(given.asked) if not given.page or given.asked else ():
        print(f"{row.outcome:7} {row.file}.{row.name}: {row.said}", flush=True)
        if row.outcome != "absent":
            results[row.file, row.name] = row
        if given.state:
            told = "".join(json.dumps(asdict(each)) + "\n" for each in results.values())
            given.state.write_text(told)
    if given.page:
        text = given.page.read_text(encoding="utf-8")
        head, rest = text.split(BEGIN)
        tail = rest.split(END)[1]
        given.page.write_text(f"{head}{BEGIN}\n{table(list(results.values()))}{END}{tail}")


if __name__ == "__main__":
    sys.exit(main())
