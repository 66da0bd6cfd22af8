"""What the benchmarks share: clocks, child processes, tables, and rows kept in bench/results."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import platform
import signal
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.table import Table

T = TypeVar("T")

RESULTS = Path(__file__).parent / "results"
sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "models"))


def prepare() -> None:
    """One thread, and no warnings of other people's libraries between the rows."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")


def asked_for_rows(about: str | None) -> argparse.Namespace:
    """The command line of a benchmark with a row a model (`only`, `table`), and silence for it."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--table", type=Path, help="a page with the markers of the table")
    arguments = parser.parse_args()
    prepare()
    logging.disable(logging.CRITICAL)
    return arguments


def cpu_name() -> str:
    """The name of this machine's processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((x.split(": ")[1] for x in lines if x.startswith("model name")), "unknown CPU")


def cpu_seconds(work: Callable[[], T], repeat: int = 1) -> tuple[float, T]:
    """The least CPU seconds of this process over `repeat` runs, and what the last run gave.

    CPU seconds, because other processes share the machine. The collector runs before, not while
    the clock does, unless the work itself asks for memory enough.
    """
    best, result = float("inf"), None
    for _ in range(repeat):
        gc.collect()
        started = time.process_time()
        result = work()
        best = min(best, time.process_time() - started)
    assert result is not None
    return best, result


def set_threads(count: int | None) -> int:
    """Set the threads of XNNPACK's pool, None for its own number; before a delegate is loaded."""
    from stepwell.translate.executorch_private import count_threads, reset_threadpool

    if count is not None:
        reset_threadpool(count)
    return count_threads()


def in_a_child(work: Callable[[], Any]) -> tuple[Any, str]:
    """What `work` returns in a fork of this process, or None and how the fork ended.

    No delegate may have been loaded in this process: threads do not survive a fork.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        code = 1
        try:
            with open(write, "w") as pipe:
                json.dump(work(), pipe)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    with open(read) as pipe:
        text = pipe.read()
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ended == 0:
        return json.loads(text), ""
    return None, signal.Signals(-ended).name if ended < 0 else f"exit status {ended}"


def p10(times: Sequence[float]) -> float:
    """The tenth percentile."""
    return statistics.quantiles(times, n=10, method="inclusive")[0]


def in_turn(
    calls: Mapping[str, Callable[[], Any]],
    runs: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:
    """Milliseconds of each by a clock (CPU time), the tenth percentile of runs in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(runs):
        for name, call in calls.items():
            began = clock()
            call()
            times[name].append((clock() - began) * 1e3)
    return {name: sorted(each)[runs // 10] for name, each in times.items()}


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> None:
    """Print a table: the first column names, the others hold numbers."""
    table = Table(title=title, caption=note or None, title_justify="left", caption_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """A page's table."""
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return lines + [f"| {' | '.join(map(_cell, row))} |" for row in rows]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}"
    return "–" if value is None else str(value)


def write(name: str, results: Any) -> None:
    """Keep results as bench/results/<name>.json, with what they were measured on."""
    RESULTS.mkdir(exist_ok=True)
    record = {"torch": torch.__version__, "python": platform.python_version(), "results": results}
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")


def read(name: str) -> Any:
    """What `write` kept under a name; nothing where it kept nothing."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text())["results"] if file.exists() else []


def kept_rows(cache: Path | None) -> dict[str, Any]:
    """The rows that an ended run kept in its cache."""
    return json.loads(cache.read_text()) if cache is not None and cache.exists() else {}


def keep_rows(cache: Path | None, rows: dict[str, Any]) -> None:
    """Keep rows in a cache, if there is to be one; an end while it is written loses nothing."""
    if cache is not None:
        beside = cache.with_name(cache.name + ".new")
        beside.write_text(json.dumps(rows, indent=1))
        beside.replace(cache)


def between_markers(document: Path, name: str, lines: Sequence[str]) -> None:
    """Replace what a document holds between `<!-- name -->` and `<!-- /name -->`."""
    before, start, rest = document.read_text(encoding="utf-8").partition(f"<!-- {name} -->")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not end:
        raise SystemExit(f"{document} has no lines <!-- {name} --> and <!-- /{name} -->")
    text = "\n".join((before + start, *lines, end + after))
    document.write_text(text, encoding="utf-8")
