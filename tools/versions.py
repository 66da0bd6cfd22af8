"""The quick suite on other versions of what stepwell stands on, and what resolves beside it.

    python tools/versions.py --table docs/versions.md        # every combination, one at a time
    python tools/versions.py --python python3.12 --executorch 1.5.1 --xdsl 0.74.0
    python tools/versions.py --resolve                       # beside each extra, nothing installed

Each environment is made by pip from the index at hand, in --folder or in a temporary one; stepwell
goes in as a wheel. An interpreter that is not there is a row that says so.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
EXECUTORCH = ("1.4.1", "1.5.1")
XDSL = ("0.73.0", "0.74.0")
TORCH = "torch>=2.13,<2.14"
TOOLS = ("pytest>=9", "hypothesis>=6.100", "tosa-tools>=2026.5", "ml_dtypes>=0.5")
SUITE = (
    "tests/test_private_names.py",
    "tests/executorch/test_models.py",
    "tests/executorch/test_read.py",
    "tests/workbench/test_partitioner.py",
    "tests/workbench/test_recipes.py",
    "tests/workbench/test_short_ways.py",
)
"""A few minutes of CPU: private names, programs on the runtime, the stock flow, files."""
BESIDE = (
    "executorch[ethos-u]==1.5.1",
    "executorch[vgf]==1.5.1",
    "executorch[openvino]==1.5.1",
    "executorch[ethos-u]==1.4.1",
    "executorch[vgf]==1.4.1",
    "optimum-executorch",
)
"""What users have, and want stepwell beside."""


@dataclass(frozen=True)
class Row:
    """What the suite says of one combination."""

    python: str
    executorch: str
    xdsl: str
    torch: str
    said: str
    failed: tuple[str, ...] = ()

    def __str__(self) -> str:
        fails = "; ".join(self.failed)
        cells = (self.python, self.executorch, self.torch, self.xdsl, self.said, fails)
        return f"| {' | '.join(cells)} |"


def ran(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """A command, with what it says."""
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, cwd=ROOT
    )


def last_line(text: str) -> str:
    """The last line of what was said that says something."""
    lines = [line for line in text.splitlines() if line.strip() and "is ignored: it is" not in line]
    return lines[-1].strip() if lines else ""


def wheel(folder: Path) -> Path:
    """The wheel, as users get it."""
    built = ran(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT)
    if built.returncode:
        raise SystemExit(f"no wheel: {last_line(built.stderr)}")
    return next(folder.glob("stepwell-*.whl"))


def environment(python: str, executorch: str, folder: Path, ours: Path) -> Path | str:
    """The interpreter of an environment; a sentence where none can be made."""
    place = folder / f"{python}-executorch-{executorch}"
    inside = place / "bin" / "python"
    if not inside.exists():
        if shutil.which(python) is None:
            return "not on this machine"
        made = ran(python, "-m", "venv", place)
        if made.returncode:
            return last_line(made.stderr)
    wanted = (TORCH, f"executorch=={executorch}", ours, *TOOLS)
    installed = ran(inside, "-m", "pip", "install", "-q", *wanted)
    return inside if not installed.returncode else last_line(installed.stderr)


def row(python: str, executorch: str, xdsl: str, folder: Path, ours: Path) -> Row:
    """One combination."""
    inside = environment(python, executorch, folder, ours)
    if isinstance(inside, str):
        return Row(python, executorch, xdsl, "", inside)
    pinned = ran(inside, "-m", "pip", "install", "-q", f"xdsl=={xdsl}")
    if pinned.returncode:
        return Row(python, executorch, xdsl, "", last_line(pinned.stderr))
    torch = ran(inside, "-c", "import torch; print(torch.__version__)").stdout.strip()
    tests = ran(inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", *SUITE)
    failed = re.findall(r"^(?:FAILED|ERROR) \S+/(\S+?)(?: |$)", tests.stdout, re.M)
    said = re.sub(r" in [\d.]+s.*|, \d+ warnings?|=", "", last_line(tests.stdout)).strip()
    return Row(python, executorch, xdsl, torch, said or last_line(tests.stderr), tuple(failed))


def resolve(python: Path, ours: Path) -> int:
    """Print what pip makes of stepwell beside each of `BESIDE`; 1 if something is impossible."""
    worst = 0
    for beside in BESIDE:
        tried = ran(python, "-m", "pip", "install", "-q", "--dry-run", ours, beside)
        alone = ran(python, "-m", "pip", "install", "-q", "--dry-run", beside)
        words = [
            "resolves" if not one.returncode else last_line(one.stderr) for one in (tried, alone)
        ]
        print(f"| `{beside}` | {words[0]} | {words[1]} |", flush=True)
        worst |= bool(tried.returncode and not alone.returncode)
    return worst


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the environments that are asked for, print a row each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", default=[], help=", ".join(PYTHONS))
    parser.add_argument("--executorch", action="append", default=[], help=", ".join(EXECUTORCH))
    parser.add_argument("--xdsl", action="append", default=[], help=", ".join(XDSL))
    parser.add_argument("--folder", type=Path, help="keep the environments here")
    parser.add_argument("--table", type=Path, help="a page with the markers of the table")
    parser.add_argument("--resolve", action="store_true", help="what resolves beside each extra")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        ours = wheel(Path(temporary))
        if given.resolve:
            return resolve(Path(sys.executable), ours)
        rows: list[Row] = []
        for python, executorch, xdsl in product(
            given.python or PYTHONS, given.executorch or EXECUTORCH, given.xdsl or XDSL
        ):
            rows.append(row(python, executorch, xdsl, folder, ours))
            print(rows[-1], flush=True)
    if given.table:
        head = [
            "| Python | ExecuTorch | torch | xDSL | quick suite | fails |",
            "|---|---|---|---|---|---|",
        ]
        text = given.table.read_text(encoding="utf-8")
        before, _, rest = text.partition("<!-- versions -->\n")
        after = rest.partition("<!-- /versions -->")[2]
        lines = "\n".join([*head, *map(str, rows)])
        given.table.write_text(f"{before}<!-- versions -->\n{lines}\n<!-- /versions -->{after}")
    return 1 if any(one.failed for one in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
