"""Memory and time of recurrent models of static and dynamic length, beside eager PyTorch.

    python tools/recurrences.py [--length N ...] [model ...]

Each row is measured in processes of its own, on one thread: the megabytes that loading a `.pte` and
running it adds to a process that has loaded the runtime (`bench/_memory.py`), less those of a
program of 29 KB, and the least time of a run divided by that of eager PyTorch in the same process.
`difference` is relative to the largest number of eager PyTorch's results.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "bench"), str(ROOT / "examples" / "models")]

from _memory import resources  # noqa: E402

import recurrent  # noqa: E402
import stepwell  # noqa: E402
from stepwell.backends.executorch.running.runner import PteSession  # noqa: E402
from stepwell.translate.executorch_private import reset_threadpool  # noqa: E402
from stepwell.translate.importer.export_call import export  # noqa: E402

MODELS = {"long_lstm": 1, "crnn": 3, "duration_predictor": 1}
"""The axis of the first input that may be dynamic; a step of the CRNN is four columns of it."""
RUNS = 15


@cache
def runtime() -> float:
    """Return the megabytes that the first run of a tiny program adds: the runtime's own."""
    module, inputs = recurrent.lstm()
    pte = stepwell.lower(export(module, inputs), "xnnpack").to_pte()
    return resources({"pte": pte}, inputs, 1)["pte"][0]["steady"]


def measured(name: str, length: int, dynamic: bool) -> dict[str, Any]:
    """Return the file's size, the memory, the times and the difference of one model."""
    module, inputs = getattr(recurrent, name)(length)
    axis = MODELS[name]
    most = torch.export.Dim.AUTO(min=2, max=inputs[0].shape[axis])  # pyright: ignore
    shapes = ({axis: most}, *[None] * (len(inputs) - 1)) if dynamic else None
    lowered = stepwell.lower(export(module, inputs, dynamic_shapes=shapes), "xnnpack")
    pte = lowered.to_pte()
    (memory,) = resources({"pte": pte}, inputs, 1)["pte"]
    resident = memory["steady"] - runtime()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.pte").write_bytes(pte)
        command = [sys.executable, __file__, "--time", folder, name, "--length", str(length)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return {
        "file": len(pte) / 2**20,
        "resident": resident,
        **json.loads(done.stdout.splitlines()[-1]),
        "delegates": lowered.report.delegates,
        "outside": lowered.report.outside.total(),
    }


def timed(folder: str, name: str, length: int) -> dict[str, float]:
    """Return the least time of a run, and that of eager PyTorch, in milliseconds."""
    torch.set_num_threads(1)
    reset_threadpool(1)
    module, inputs = getattr(recurrent, name)(length)
    running = PteSession.load((Path(folder) / "model.pte").read_bytes())

    def least(run: Callable[[], Any]) -> float:
        best = float("inf")
        for _ in range(RUNS):
            started = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - started)
        return 1e3 * best

    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(module(*inputs))  # pyright: ignore
        apart = max(
            ((one - other).abs().max() / other.abs().max()).item()
            for one, other in zip(running.run(*inputs), wanted, strict=True)
        )
        times = {
            "time": least(lambda: running.run(*inputs)),
            "eager": least(lambda: module(*inputs)),
        }
    return {**times, "difference": apart}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--length", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--time", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.time:
        print(json.dumps(timed(options.time, options.models[0], options.length[0])))
        return
    names = "model|steps|length|file MB|resident MB|ms|eager ms|÷ eager|delegates / outside"
    print("| " + " | ".join([*names.split("|"), "difference"]) + " |\n|" + "---|" * 10)
    for name in options.models:
        for length in options.length:
            for dynamic in (False, True):
                found = measured(name, length, dynamic)
                kind = "dynamic" if dynamic else "static"
                print(
                    f"| {name} | {length} | {kind} | {found['file']:.1f} | {found['resident']:.1f} "
                    f"| {found['time']:.2f} | {found['eager']:.2f} "
                    f"| {found['time'] / found['eager']:.2f} | {found['delegates']} / "
                    f"{found['outside']} | {found['difference']:.0e} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
