"""Run the passes and FileCheck tests of other xDSL projects by stepwell.

    git clone https://github.com/xdslproject/inconspiquous /tmp/inconspiquous
    python tools/xdsl_projects.py /tmp/inconspiquous=inconspiquous --opt quopt
        --main inconspiquous.tools.quopt_main:main    # on the same line

`FOLDER=PACKAGE` is a clone and the Python package in it. What of it this version of xDSL can
import is registered as a plug-in: its dialects, and the passes and patterns without needed
arguments. Then

- each pass and pattern runs as a step of the pipeline of XNNPACK over a small program;
- each `RUN:` line of the project's FileCheck tests that only uses its own driver and `filecheck`
  runs with `stepwell opt` in the driver's place. The project's own driver runs beside it, because a
  test of another version of xDSL may fail with both.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from xdsl.ir import Dialect
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import RewritePattern

import stepwell

PLUGIN = """
import sys

sys.path[:0] = {paths!r}
from xdsl_projects import found_in


def plugin(registry):
    for value in found_in({folder!r}, {package!r}):
        registry.dialect(value) if not isinstance(value, type) else registry.step(value)
"""
SUBSTITUTION = re.compile(r"substitutions\.append\(\(\s*['\"](\w+)['\"],\s*\"([^\"]*)\"\)\)")


def found_in(folder: str, package: str) -> list[Any]:
    """Return the dialects, passes and patterns in those modules of a package that can be imported.

    Dialects that xDSL or stepwell has too are theirs.
    """
    sys.path.insert(0, folder)
    found: dict[str, Any] = {}
    for file in sorted((Path(folder) / package).rglob("*.py")):
        name = ".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        try:
            module = importlib.import_module(name)
        except (Exception, SystemExit):
            continue
        for value in vars(module).values():
            if isinstance(value, Dialect):
                found.setdefault(f"dialect {value.name}", value)
            elif inspect.isclass(value) and value.__module__ == name and _is_made_plainly(value):
                found.setdefault(getattr(value, "name", None) or value.__qualname__, value)
    return list(found.values())


def _is_made_plainly(cls: type) -> bool:
    if not issubclass(cls, ModulePass | RewritePattern) or inspect.isabstract(cls):
        return False
    try:
        cls()
    except Exception:
        return False
    return True


def commands(project: Path, driver: str) -> Iterator[tuple[Path, str]]:
    """Yield the `RUN:` lines that use a project's driver and `filecheck` alone."""
    for folder in (lit.parent for lit in project.rglob("lit.cfg")):
        known = dict(SUBSTITUTION.findall((folder / "lit.cfg").read_text()))
        for file in sorted(folder.rglob("*.mlir")):
            for line in re.findall(r"^// RUN: *(.*)$", file.read_text(), re.M):
                line = known.get(line.strip(), line).replace("%s", str(file))
                if {part.split()[0] for part in line.split("|")} <= {driver, "filecheck"}:
                    yield file, line


def runs(line: str, folder: Path) -> bool:
    """Whether a shell line ends with 0, with a project's package on the path."""
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    shell = ["bash", "-o", "pipefail", "-c", line]
    return subprocess.run(shell, capture_output=True, env=env, timeout=120).returncode == 0


def main() -> int:
    """Run each project; print a row for each, and the tests that only the project's driver runs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("project", help="FOLDER=PACKAGE")
    parser.add_argument("--opt", required=True, help="the project's driver in its RUN: lines")
    parser.add_argument("--main", help="the driver's module:function, if it is not installed")
    arguments = parser.parse_args()
    folder, _, package = arguments.project.partition("=")
    root = Path(folder).resolve()
    found = [value for value in found_in(str(root), package) if isinstance(value, type)]
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    exported = torch.export.export(model, (torch.randn(2, 4),))
    ran = {True: 0, False: 0}
    for step in found:
        pipeline = stepwell.PIPELINES["xnnpack"].after("normalize", step)
        try:
            stepwell.lower(exported, "xnnpack", pipeline)
        except stepwell.StepwellError as error:
            print(f"  {error}".partition("\n")[0])
        else:
            ran[issubclass(step, ModulePass)] += 1
    print(f"{package}: of {len(found)} passes and patterns, in a pipeline run ", end="")
    print(f"{ran[True]} passes and {ran[False]} patterns")
    module, _, function = (arguments.main or "").partition(":")
    own = f"{sys.executable} -c 'from {module} import {function}; {function}()'"
    counts = {"by both": 0, "by stepwell alone": 0, "by the project's driver alone": 0}
    with tempfile.NamedTemporaryFile("w", suffix=".py") as plugin:
        paths = [str(Path(__file__).parent)]
        plugin.write(PLUGIN.format(paths=paths, folder=str(root), package=package))
        plugin.flush()
        ours = f"{sys.executable} -m stepwell opt --load {plugin.name}"
        for file, line in commands(root, arguments.opt):
            by = [
                runs(re.sub(rf"\b{arguments.opt}\b(?! *=)", instead, line), root)
                for instead in (ours, own if module else arguments.opt)
            ]
            counts["by both"] += all(by)
            counts["by stepwell alone"] += by == [True, False]
            counts["by the project's driver alone"] += by == [False, True]
            if by == [False, True]:
                print(f"  {file.relative_to(root)}: {line.replace(str(root), '')}")
    print("  tests passed " + ", ".join(f"{kind}: {count}" for kind, count in counts.items()))
    return counts["by the project's driver alone"]


if __name__ == "__main__":
    sys.exit(main())
