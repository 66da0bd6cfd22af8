"""Run the suite's tests that run a `.pte` on emulated Arm64 cores.

    python tools/arm64/suite.py                                every folder, both cores
    python tools/arm64/suite.py --cores cortex-a76 tests/xnnpack tests/executorch

On the first core every test runs with `STEPWELL_CPU`, and those that started a program there are
recorded; on further cores only these run. A folder is a process of its own. Status 1 if a test
fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stepwell.backends.executorch.running import arm64

ROOT = Path(__file__).parents[2]
NOTES = "STEPWELL_SUITE_NOTES"
"""Where the plug-in, which is also this file, writes what a pytest process ran."""


@dataclass
class Notes:
    """The results of tests.

    Attributes:
        ran: names of those that started a program on the core, in themselves or in their fixtures.
        failed: names of those that failed, whether they started a program or not.
        tests: the number of tests, including skipped ones.
    """

    ran: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])
    tests: int = 0

    def add(self, other: Notes) -> None:
        """Add the results of another folder."""
        self.ran += other.ran
        self.failed += other.failed
        self.tests += other.tests


_notes, _programs = Notes(), 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record a test that starts a program."""
    before = _programs
    _notes.tests += 1
    result = yield
    if _programs > before:
        _notes.ran.append(item.nodeid)
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record a failure once."""
    if report.failed and report.nodeid not in _notes.failed:
        _notes.failed.append(report.nodeid)


def pytest_configure() -> None:
    """Count the programs that start."""
    start = arm64.EmulatedProgram.__init__

    def counted(self: arm64.EmulatedProgram, *arguments: Any, **options: Any) -> None:
        global _programs
        _programs += 1
        start(self, *arguments, **options)

    setattr(arm64.EmulatedProgram, "__init__", counted)  # noqa: B010  # A method, to pyright.


def pytest_unconfigure() -> None:
    """Write the results."""
    Path(os.environ[NOTES]).write_text(json.dumps(asdict(_notes)))


def run(core: str, tests: Sequence[str]) -> Notes:
    """Run tests in a pytest process on a core."""
    if not tests:
        return Notes()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "notes.json"
        places = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        arguments = Path(folder) / "tests"
        arguments.write_text("\n".join(tests))
        done = subprocess.run(
            [*(sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"),
             *("-p", Path(__file__).stem, f"@{arguments}")],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places)),
                 arm64.VARIABLE: core, NOTES: str(path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )  # fmt: skip
        notes = Notes(**json.loads(path.read_text())) if path.exists() else Notes()
    if done.returncode not in (0, 5):
        print(done.stdout[-30_000:])
        notes.failed = notes.failed or [f"pytest ended with {done.returncode}"]
    return notes


def main() -> int:
    """Run folders on cores; print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cores", nargs="+", default=["cortex-a76", "neoverse-v1"])
    parser.add_argument("--notes", type=Path, help="record here which tests of a folder ran a .pte")
    parser.add_argument("tests", nargs="*", help="folders and files; every folder of tests/")
    options = parser.parse_args()
    if why := next(filter(None, map(arm64.missing, options.cores)), None):
        print(f"not run: {why}")
        return 0
    folders = options.tests or sorted(
        str(path.relative_to(ROOT)) for path in (ROOT / "tests").iterdir() if _has_tests(path)
    )
    known = (
        json.loads(options.notes.read_text()) if options.notes and options.notes.exists() else {}
    )
    found = {core: Notes() for core in options.cores}
    for folder in folders:
        for core in options.cores:
            started = time.perf_counter()
            notes = run(core, known.get(folder, [folder]))
            known[folder] = notes.ran
            found[core].add(notes)
            print(
                f"{folder} on {core}: {len(notes.ran)} of {notes.tests} ran a .pte, "
                f"{len(notes.failed)} failed, {time.perf_counter() - started:.0f} s",
                *notes.failed,
                sep="\n  ",
                flush=True,
            )
            if options.notes:
                options.notes.write_text(json.dumps(known))
    return int(any(notes.failed for notes in found.values()))


def _has_tests(path: Path) -> bool:
    return path.name.startswith("test_") or (path.is_dir() and any(path.rglob("test_*.py")))


if __name__ == "__main__":
    sys.exit(main())
