"""How much memory a piece of work adds to this process at the most (Linux)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def resident(field: str, process: int | str = "self") -> int | None:
    """Bytes that Linux gives for a process: `VmRSS` now, `VmHWM` at the most, `VmData` allotted."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(field)), None)


def peak(work: Callable[[], T]) -> tuple[T, int | None]:
    """What a call gives, and the bytes that it adds at the most; None where that is not told."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # The highest so far is now.
    except OSError:
        return work(), None
    before = resident("VmRSS")
    result = work()
    after = resident("VmHWM")
    return result, None if before is None or after is None else max(0, after - before)
