"""How often eight threads of a cold process hang, or end it, over their first load of a `.pte`.

    python bench/threads.py --runs 50

Each run is a process of its own in which eight threads lower a model, load what came of it and run
it, all at once; beside it, eight threads load and run the same file with ExecuTorch's own Python
module. A run that takes longer than `--seconds` is a hang.
"""

from __future__ import annotations

import argparse
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
SCRIPTS = {"stepwell: lower, load, run": OURS, "stock: load, run": STOCK}


def main() -> None:
    """Print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
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
            return f"| {name} | {asked.runs} | " + " | ".join(map(str, counts.values())) + " |"

        with ThreadPoolExecutor() as pool:  # Each row one process after the other.
            print("\n".join(pool.map(row, SCRIPTS)))


def outcome(script: str, path: Path, seconds: float) -> str:
    """What became of one process."""
    command = [sys.executable, "-c", script, str(path)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return "hang"
    return "fail" if done.returncode else "right"


if __name__ == "__main__":
    main()
