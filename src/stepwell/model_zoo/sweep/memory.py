"""Measure the peak memory that a call adds to this process (Linux)."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def resident(field: str, process: int | str = "self") -> int | None:
    """Read a process's bytes on Linux: `VmRSS` (current), `VmHWM` (peak), `VmData` (allocated)."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(field)), None)


def peak(work: Callable[[], T]) -> tuple[T, int | None]:
    """Return a call's result and the peak bytes that it adds; None if memory cannot be measured."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # The highest so far is now.
    except OSError:
        return work(), None
    before = resident("VmRSS")
    result = work()
    after = resident("VmHWM")
    return result, None if before is None or after is None else max(0, after - before)
