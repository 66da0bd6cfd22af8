"""How often eight threads of a cold process hang or crash in their first load of a `.pte`.

    python bench/threads.py --runs 50

Each run is a process of its own in which eight threads lower a model, load what came of it and run
it, all at once; beside it, eight threads load and run the same file with ExecuTorch's own Python
module. A process that still lives and that hardly computes for `--seconds` hangs, however long the
machine keeps it waiting before; what waits for the GIL looks for it some 200 times a second.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SETUP = """
import sys, threading, torch
model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), torch.ones(1, 4)
barrier, done = threading.Barrier(8), []
"""
OURS = """
import stepwell
exported = torch.export.export(model, (x,))
def work():
    barrier.wait()
    lowered = stepwell.lower(exported, "xnnpack")
    torch.testing.assert_close(lowered.run(x)[0], model(x))
    done.append(1)
"""
PARTITIONED = """
exported = torch.export.export(model, (x,))
def work():
    barrier.wait()
    from executorch.exir import to_edge_transform_and_lower
    from stepwell import StepwellPartitioner, torch_alone
    from stepwell.backends.executorch.running.runner import PteSession
    with torch_alone():  # The stock flow exports, and swaps torch's globals.
        made = to_edge_transform_and_lower(exported, partitioner=[StepwellPartitioner()])
        data = made.to_executorch().buffer
    torch.testing.assert_close(PteSession.load(data).run(x)[0], model(x))
    done.append(1)
"""
STOCK = """
from executorch.runtime import Runtime
data = open(sys.argv[1], "rb").read()
def work():
    barrier.wait()
    Runtime.get().load_program(data).load_method("forward").execute([x])
    done.append(1)
"""
START = """
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(done) == 8, len(done)
"""
SCRIPTS = {
    "stepwell: lower, load, run": OURS,
    "stepwell: the partitioner in the stock flow": PARTITIONED,
    "stock: load, run": STOCK,
}


def main() -> None:
    """Print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    asked = parser.parse_args()
    print("| eight threads, cold process | runs | right | hang | fail |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pte"
        write = (
            "import sys, torch, stepwell\nmodel = torch.nn.Linear(4, 4)\n"
            "exported = torch.export.export(model, (torch.ones(1, 4),))\n"
            "stepwell.lower(exported, 'xnnpack').save(sys.argv[1])\n"
        )
        subprocess.run([sys.executable, "-c", write, str(path)], check=True)

        def row(name: str) -> str:
            counts = {"right": 0, "hang": 0, "fail": 0}
            for _ in range(asked.runs):
                counts[outcome(SETUP + SCRIPTS[name] + START, path, asked.seconds)] += 1
                print(name, counts, file=sys.stderr)
            return f"| {name} | {asked.runs} | " + " | ".join(map(str, counts.values())) + " |"

        with ThreadPoolExecutor() as pool:  # Each row one process after the other.
            print("\n".join(pool.map(row, SCRIPTS)))


def outcome(script: str, path: Path, seconds: float) -> str:
    """What became of one process."""
    command = [sys.executable, "-c", script, str(path)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet) as process:
        was = computed(process.pid)
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return "fail" if process.wait(seconds) else "right"
            now = computed(process.pid)
            if now - was < seconds / 40:
                process.kill()
                return "hang"
            was = now


def computed(process: int) -> float:
    """The seconds of CPU time that a process of this machine (Linux) has had."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
