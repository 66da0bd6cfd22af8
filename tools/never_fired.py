"""List the rewrites that are never applied: programs are lowered, and applications are counted.

    python tools/never_fired.py --state RESULTS.jsonl                    # all of it
    python tools/never_fired.py --state RESULTS.jsonl --only 'examples/*'
    python tools/never_fired.py --state RESULTS.jsonl --report           # what there is

The repository's examples are lowered to the targets that `stepwell replay` uses, and each of
PyTorch's operator samples of an element type (`--dtypes`) to `--targets`. A run continues from the
rows in its file. A rewrite on the list should be removed, unless a program is shown that needs it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch

import stepwell
from stepwell.ir.rewriting.rewrite import Rewrite
from stepwell.model_zoo.catalogue.models import Entry, select
from stepwell.model_zoo.regression.replay import TARGETS
from stepwell.pipelines.pass_pipeline.named_passes import step_classes
from stepwell.translate.importer.export_call import export

SECONDS = 60
"""The CPU seconds for one program, including export."""

Job = tuple[str, Callable[[], Any], tuple[str, ...]]
"""A name, the function that exports the program, and the targets."""


def examples() -> Iterator[Job]:
    """Yield the repository's examples, plain and quantized."""
    for entry in select(("examples/*", "quantized/*")):
        yield (
            entry.name,
            lambda entry=entry: exported(entry),
            ((entry.target,) if entry.target else TARGETS),
        )


def exported(entry: Entry) -> Any:
    """Export a model of the zoo."""
    made = entry.make()
    if made.program is not None:
        return made.program
    assert made.module is not None
    return export(made.module, made.inputs, dynamic_shapes=made.dynamic)


def operators(dtypes: tuple[str, ...], targets: tuple[str, ...], count: int) -> Iterator[Job]:
    """Yield the first samples of each of PyTorch's operators, of each element type."""
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        for dtype in dtypes:
            for at in range(count):
                name = f"opinfo/{info.name}.{info.variant_test_name}@{dtype}.{at}"
                yield name, lambda info=info, dtype=dtype, at=at: sampled(info, dtype, at), targets


def sampled(info: Any, dtype: str, at: int) -> Any:
    """Export one sample of an operator."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
    from opinfo import samples  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

    listed: list[Any] = list(samples(info, getattr(torch, dtype)))  # pyright: ignore
    module, inputs = listed[at]
    return torch.export.export(module, inputs)


def applied(make: Callable[[], Any], targets: tuple[str, ...]) -> dict[str, Any]:
    """Count how often each rewrite was applied in the lowerings to the targets, and record
    refusals.
    """
    counted: Counter[str] = Counter()
    fails: list[str] = []
    program = make()
    for target in targets:
        try:
            report = stepwell.lower(program, target).report
            counted.update(event.rewrite for event in report.events)
        except Exception as error:  # A program that is not lowered applies no rewrite that counts.
            fails.append(f"{target}: {type(error).__name__}")
    return {"applied": counted, "fails": fails}


def in_a_fork(make: Callable[[], Any], targets: tuple[str, ...]) -> dict[str, Any]:
    """Do the same in a forked process, which may crash."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        os.close(read)
        try:
            row = applied(make, targets)
        except Exception as error:  # Torch cannot export this program.
            row = {"fails": [f"export: {type(error).__name__}"]}
        with os.fdopen(write, "w") as pipe:
            pipe.write(json.dumps(row))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    ended = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    return json.loads(said) if code == 0 else {"fails": [ended]}


def report(rows: list[dict[str, Any]]) -> None:
    """Print the rewrites that no row contains, by module."""
    counted: Counter[str] = Counter()
    for row in rows:
        counted.update(row.get("applied", {}))
    steps = [cls for cls in step_classes().values() if issubclass(cls, Rewrite)]
    idle = sorted(f"{cls.__module__} {cls.name}" for cls in steps if not counted[cls.name])
    print(f"{len(rows)} programs; {len(idle)} of {len(steps)} rewrites fired on none:")
    print("\n".join(idle))


def main() -> None:
    """Lower what is missing, then print the list."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--only", default="*", help="a pattern of names")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float16", "int32"])
    parser.add_argument("--targets", nargs="+", default=[*TARGETS])
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if options.state.exists():
        rows = [json.loads(line) for line in options.state.read_text().splitlines()]
    done = {row["name"] for row in rows}
    jobs = [*examples(), *operators(tuple(options.dtypes), tuple(options.targets), options.samples)]
    with options.state.open("a", buffering=1, encoding="utf-8") as state:
        for name, make, targets in [] if options.report else jobs:
            if name in done or not fnmatch(name, options.only):
                continue
            row = {"name": name, **in_a_fork(make, targets)}
            rows.append(row)
            state.write(json.dumps(row) + "\n")
    report(rows)


if __name__ == "__main__":
    main()
