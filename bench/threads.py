"""How often eight threads hang over the first load of a `.pte` in their process.

    python bench/threads.py --runs 50

Each run is a process of its own, forked before ExecuTorch's runtime is imported: eight threads
lower a model, load what came of it and run it, all at once; beside it, eight threads load and run
such a file with ExecuTorch's own Python module. A process that takes no CPU time for `--seconds`
hangs. Linux.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

import stepwell

THREADS = 8


def eight(work: Callable[[], None]) -> None:
    """Do it in all threads at once; the process ends with 0 if all of them did it."""
    barrier, done = threading.Barrier(THREADS), list[int]()

    def run() -> None:
        barrier.wait()
        work()
        done.append(1)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(int(len(done) != THREADS))


def outcome(work: Callable[[], None], seconds: float) -> str:
    """What becomes of one process."""
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        eight(work)
    taken, since = "", time.monotonic()
    while time.monotonic() - since < seconds:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return "fail" if status else "right"
        now = " ".join(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:13])
        if now != taken:
            taken, since = now, time.monotonic()
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hang"


def main() -> None:
    """Print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=8.0)
    asked = parser.parse_args()
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), torch.ones(1, 4)
    exported = torch.export.export(model, (x,))
    wanted = model(x).detach()

    def ours() -> None:
        torch.testing.assert_close(stepwell.lower(exported, "xnnpack").run(x)[0], wanted)

    def stock() -> None:
        from executorch.runtime import Runtime

        Runtime.get().load_program(path.read_bytes()).load_method("forward").execute([x])

    print("| eight threads | runs | right | hang | fail |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pte"
        stepwell.lower(exported, "xnnpack").save(path)
        for name, work in {"stepwell: lower, load, run": ours, "stock: load, run": stock}.items():
            if work is stock:  # Threads that import it at once fail, which is not counted here.
                importlib.import_module("executorch.runtime")
            found = Counter(outcome(work, asked.seconds) for _ in range(asked.runs))
            counts = " | ".join(str(found[kind]) for kind in ("right", "hang", "fail"))
            print(f"| {name} | {asked.runs} | {counts} |", flush=True)


if __name__ == "__main__":
    main()
