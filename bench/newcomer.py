"""A newcomer's path, timed: clone, `make demo`, then the example of a first rewrite, checked.

    python bench/newcomer.py [--python python3]
    python bench/newcomer.py --wheel        # a clone's wheel in an empty environment and folder

Commands are those that the README gives, on a clone of this repository's last commit with an
environment of its own. A torch that the Python given can import is used, as by anybody's `make`;
downloads count, except for what pip has in its cache. With `--wheel` nothing but stepwell and what
it needs is installed, no package of another target: the README's lines are pasted into a file, then
index.md's shell lines are typed, in a folder with nothing in it.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def timed(what: str, command: list[str], folder: Path) -> float:
    """Seconds a command takes; its output is shown only if it fails."""
    started = time.perf_counter()
    environment = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=environment
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        raise SystemExit(f"{what} failed")
    print(f"| {what} | {seconds:.0f} |", flush=True)
    return seconds


OTHERS = "tosa_serializer tosa_reference_model ethosu ai_edge_litert transformers"
"""Modules of the packages that other targets than XNNPACK need."""
ABSENT = f"""
from importlib.util import find_spec
there = [name for name in {OTHERS.split()} if find_spec(name)]
assert not there, f"in what should be an empty environment: {{there}}"
"""


def pasted(page: Path, head: str) -> str:
    """The first block of a page under a head, but for one that installs."""
    found = re.findall(rf"^```{head}\n(.*?)^```$", page.read_text(), re.M | re.S)
    return next(body for body in found if "pip install" not in body)


def from_the_wheel(python: str, folder: Path) -> float:
    """The README's first lines and index.md's commands by a user of the wheel; seconds."""
    total = timed("clone", ["git", "clone", "-q", str(ROOT), "stepwell"], folder)
    clone, empty = folder / "stepwell", folder / "empty"
    empty.mkdir()
    total += timed("an empty environment", [python, "-m", "venv", "environment"], folder)
    inside = str(folder / "environment/bin/python")
    build = [inside, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(clone)]
    total += timed("a wheel of the clone", build, folder)
    (wheel,) = folder.glob("stepwell-*.whl")
    install = [inside, "-m", "pip", "install", "-q", "--no-compile", str(wheel), "torch==2.13.0"]
    total += timed("the wheel and what it needs", install, folder)
    total += timed("no package of another target is there", [inside, "-c", ABSENT], empty)
    (empty / "readme.py").write_text(pasted(clone / "README.md", "python"))
    total += timed("README.md's first lines, as pasted", [inside, "readme.py"], empty)
    index = clone / "docs/index.md"
    (empty / "mlp.py").write_text(pasted(index, 'python title="mlp.py"'))
    for line in pasted(index, "sh").splitlines():
        words = [str(Path(inside).with_name("stepwell")), *shlex.split(line, comments=True)[1:]]
        total += timed(f"`{line}`", words, empty)
    return total


def main() -> None:
    """Walk the path in a folder that is removed afterwards."""
    parser = argparse.ArgumentParser(description="Time a newcomer's path.")
    parser.add_argument("--python", default="python3", help="the Python that make is told to use")
    parser.add_argument("--wheel", action="store_true", help="install a wheel, leave the clone")
    arguments = parser.parse_args()
    python: str = arguments.python
    print("| step | seconds |\n|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.wheel:
            print(f"| together | {from_the_wheel(python, folder):.0f} |")
            return
        clone = ["git", "clone", "--quiet", str(ROOT), "stepwell"]
        total = timed("clone", clone, folder)
        folder /= "stepwell"
        ready = ["make", ".venv/ready", f"PYTHON3={python}"]
        total += timed("environment: `make` installs it", ready, folder)
        total += timed("`make demo`: DeiT-Tiny lowered, run, compared", ["make", "demo"], folder)
        own = [".venv/bin/python", "examples/first_rewrite.py"]
        total += timed("the example of a first rewrite, lowered and checked", own, folder)
        shown = [".venv/bin/stepwell", "show", "examples/models/deit.py:deit_tiny"]
        shown += ["-t", "xnnpack", "--html", "deit.html"]
        total += timed("the page that shows each step of DeiT-Tiny", shown, folder)
    print(f"| together | {total:.0f} |")


if __name__ == "__main__":
    main()
