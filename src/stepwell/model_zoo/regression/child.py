"""Lower exported programs with the first stepwell on the Python path; print a line of JSON for
each.

    PYTHONPATH=CHECKOUT/src python child.py < ASKED

This script uses only parts of stepwell that every commit has: `lower`, the report, the program's
text, the artifact. Each program is lowered in a fork, so that a crash is also reported as a line.
"""

import hashlib
import importlib
import json
import os
import resource
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

SECONDS = 120
"""CPU seconds of one program."""


def lowered(program: Any, target: str) -> dict[str, Any]:
    """Lower a program and return the figures of the lowering."""
    import stepwell

    try:
        from stepwell.ir.work import operations
    except ImportError:  # An older commit.
        operations = importlib.import_module("stepwell.costs").operations

    begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    found = stepwell.lower(program, target)
    if hasattr(type(found), "artifact"):
        artifact = found.artifact
    else:  # An older commit.
        artifact = found.to_tosa() if target.startswith("tosa") else found.to_pte()
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ops = [op for op in found.program.module.walk() if not op.regions]
    return {
        "ir": hashlib.sha256(str(found.program).encode()).hexdigest(),
        "ops": dict(Counter(op.name for op in ops)),
        "sha": hashlib.sha256(artifact).hexdigest(),
        "bytes": len(artifact),
        "delegates": found.report.delegates,
        "outside": sum(found.report.outside.values()),
        "cost": sum(operations(op) for op in ops),
        "seconds": seconds,
        "peak": (peak - begun) << 10,
    }


def loaded(file: str) -> Any:
    """Load a program; import the library of its operators if torch does not know one of them."""
    import torch

    try:
        return torch.export.load(file)
    except RuntimeError:
        from stepwell.dialects.aten import registry

        for module in {**registry.LIBRARIES, **registry.FURTHER_LIBRARIES}.values():
            with suppress(ImportError):
                importlib.import_module(module)
        return torch.export.load(file)


def one(file: str, target: str) -> dict[str, Any]:
    """Lower one program and return its figures, or its refusal or exception."""
    try:
        return lowered(loaded(file), target)
    except Exception as error:  # Another commit may not refuse it: that is a difference.
        lines = str(error).strip().splitlines() or [""]
        return {"fails": f"{type(error).__name__}: {lines[0][:200]}"}


def in_a_fork(file: str, target: str) -> dict[str, Any]:
    """Lower one program in a forked process, and return its result, also if the process crashes."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        os.close(read)
        with os.fdopen(write, "w") as pipe:
            pipe.write(json.dumps(one(file, target)))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code == 0:
        return json.loads(said)
    return {"fails": signal.Signals(-code).name if code < 0 else f"exit status {code}"}


def main() -> None:
    """Lower the programs that the standard input lists: `[{"file": …, "target": …, "name": …},
    …]`.
    """
    asked = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import torch

    import stepwell.pipelines

    torch.set_num_threads(1)
    assert Path(stepwell.pipelines.__file__).is_relative_to(sys.argv[1]), "another stepwell"
    layer = torch.nn.Linear(4, 4).eval()
    stepwell.lower(torch.export.export(layer, (torch.ones(1, 4),)), "xnnpack").to_pte()
    for item in asked:
        found = in_a_fork(item["file"], item["target"])
        print(json.dumps({"name": item["name"], "target": item["target"], **found}), file=answers)


if __name__ == "__main__":
    main()
