"""`tune`: measure close alternatives of the cost model on this CPU, and keep clear winners.

Passes of a lowering record their alternatives, with an estimate of each (`ir/choices.py`). Each
alternative within `choices.CLOSE` of the least estimate is tried, one choice at a time: the program
is lowered with it and without it, and both artifacts run in turn. A choice is kept if it is faster
in nearly all pairs of runs, and by more than `NOISE` in the median. At the end the tuned program is
compared with the untuned one in the same way, and dropped if it is not faster.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwell.backends.executorch.running.runner import PteSession
from stepwell.dialects.xnnpack.costs import cpu_kind
from stepwell.ir.choices import Choice, read_table
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import write_atomically
from stepwell.lowering import Lowered, lower
from stepwell.program import Program, from_exported_program
from stepwell.translate import executorch_private

if TYPE_CHECKING:
    from torch.export import ExportedProgram

NOISE = 0.02
"""The part of a run's time that a choice must save."""
PAIRS = 41
"""Number of pairs of runs, or of batches of runs, that are compared."""
SURE = 0.8
"""The part of pairs in which the faster one must be faster."""
BATCH = 2e-3
"""Least seconds of one side of a pair."""


Measured = Mapping[str, Mapping[str, float]]
"""By key: the alternative that was tried, and its relative time; 1: not faster."""


@dataclass(frozen=True)
class Tuned:
    """The result of tuning a program.

    Attributes:
        measured: the result of each choice that was tried.
        ratio: the time of the tuned program divided by that of the untuned one, the median over
            pairs.
        untuned_ms: the time of a run with the choices of the cost model.
    """

    measured: Measured
    ratio: float
    untuned_ms: float

    @property
    def choices(self) -> dict[str, str]:
        """Return the table of choices for this program, for `lower(..., tuned=…)`."""
        return table_of([self.measured])


@dataclass(frozen=True)
class Comparison:
    """Pairs of timed runs of two programs."""

    ratios: tuple[float, ...]
    first_ms: float

    @property
    def ratio(self) -> float:
        """Return the second program's time divided by the first's, the median over pairs."""
        return statistics.median(self.ratios)

    @property
    def wins(self) -> bool:
        """Whether the second program is faster beyond noise."""
        faster = sum(ratio < 1.0 for ratio in self.ratios)
        return self.ratio <= 1.0 - NOISE and faster >= SURE * len(self.ratios)


def tune(
    program: Program | ExportedProgram,
    inputs: Sequence[Any],
    *,
    pairs: int = PAIRS,
    **options: Any,
) -> Tuned:
    """Measure the alternatives of the XNNPACK lowering of a program on this CPU.

    Args:
        program: the program to lower; it is not changed.
        inputs: the inputs of its method `forward`, flat.
        pairs: the number of pairs of runs for each comparison.
        options: as for `lower`.

    Raises:
        StepwellError: the program cannot be lowered or run.
    """
    source = program if isinstance(program, Program) else from_exported_program(program)

    def lowered(choices: Mapping[str, str]) -> Lowered:
        given: dict[str, Any] = {**options, "tuned": dict(choices)}
        return lower(source, "xnnpack", **given)

    untuned = best = lowered({})
    kept: dict[str, str] = {}
    measured: dict[str, dict[str, float]] = {}
    for choice in choices_of(untuned):
        for other in choice.others:
            candidate = lowered({**kept, choice.key: other})
            if candidate.artifact == best.artifact:
                continue
            found = compared(best, candidate, inputs, pairs)
            ratio = found.ratio if found.wins else max(1.0, found.ratio)
            measured.setdefault(choice.key, {})[other] = round(ratio, 3)
            if found.wins:
                kept[choice.key], best = other, candidate
    whole = compared(untuned, best, inputs, pairs)
    if whole.wins or not kept:
        return Tuned(measured, whole.ratio, whole.first_ms)
    for tried in measured.values():
        tried.update({name: max(1.0, ratio) for name, ratio in tried.items()})
    return Tuned(measured, 1.0, whole.first_ms)


def table_of(found: Sequence[Measured]) -> dict[str, str]:
    """Merge the measurements of several programs into one table.

    A choice is taken if it wins in one program and is clearly slower in none.
    """
    ratios: dict[str, dict[str, list[float]]] = {}
    for measured in found:
        for key, tried in measured.items():
            for name, ratio in tried.items():
                ratios.setdefault(key, {}).setdefault(name, []).append(ratio)
    table: dict[str, str] = {}
    for key, by_name in sorted(ratios.items()):
        fit = {name: math.prod(held) for name, held in by_name.items()
               if min(held) < 1.0 and max(held) <= 1.0 + NOISE}  # fmt: skip
        if fit:
            table[key] = min(fit, key=fit.__getitem__)
    return table


def choices_of(lowered: Lowered) -> list[Choice]:
    """Return the alternatives of a lowering, those of the slowest nodes first."""
    choices = lowered.program.context.choices.values()
    return sorted(choices, key=lambda choice: -min(choice.costs.values()))


def compared(
    first: Lowered,
    second: Lowered,
    inputs: Sequence[Any],
    pairs: int = PAIRS,
) -> Comparison:
    """Run two programs in turn, each as often as `BATCH` seconds allow.

    Equal programs are not run unless requested.
    """
    runs = [runner(one, inputs) for one in (first, second)]
    if first.artifact == second.artifact:
        return Comparison((1.0,), 1e3 * timed(runs[0], 1))
    once = min(timed(run, 1) for run in runs for _ in range(3))
    count = max(1, int(BATCH / once))
    ratios: list[float] = []
    firsts: list[float] = []
    for index in range(pairs):
        order = (
            (0, 1) if index % 2 else (1, 0)
        )  # The second run has the caches that the first left.
        times = {at: timed(runs[at], count) for at in order}
        ratios.append(times[1] / times[0])
        firsts.append(times[0] / count)
    return Comparison(tuple(ratios), 1e3 * min(firsts))


def runner(lowered: Lowered, inputs: Sequence[Any]) -> Callable[[], object]:
    """Return a function that runs an artifact; it is loaded once."""
    session = PteSession.load(lowered.artifact)
    given = session.laid_out(inputs, "forward")
    return lambda: session.run(*given)


def timed(run: Callable[[], object], count: int) -> float:
    """Return the seconds that some runs take: CPU seconds of this thread if only it works."""
    clock = time.thread_time if executorch_private.count_threads() == 1 else time.perf_counter
    started = clock()
    for _ in range(count):
        run()
    return clock() - started


def write_table(path: Path, choices: Mapping[str, str]) -> None:
    """Save choices for this kind of CPU in a file for `lower(..., tuned=path)`.

    Raises:
        StepwellError: the file exists and contains choices for another kind of CPU.
    """
    if path.exists() and (kind := read_table(path)[0]) != cpu_kind():
        raise StepwellError(
            f"{path} contains measurements of {kind}, but this CPU is {cpu_kind()}",
            help="keep a table for each kind of CPU",
        )
    held = {"cpu": cpu_kind(), "choices": dict(sorted(choices.items()))}
    write_atomically(path, (json.dumps(held, indent=1) + "\n").encode())
