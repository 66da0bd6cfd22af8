"""`sweep`: compute the requested rows that the store lacks, on a cluster, and store them.

Listing a zoo imports its libraries and creates some of their models, which takes longer than
reading rows. A store therefore records which rows answered a request, under a name that includes
everything that its list and the names of its rows depend on (`named_by_content`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.systems import needs_fork
from stepwell.ir.renderers import Shown
from stepwell.model_zoo.catalogue.examples import FOLDER
from stepwell.model_zoo.catalogue.models import SOURCES, Entry, find, python_file, select
from stepwell.model_zoo.sweep.cluster import local_cluster, run_tasks
from stepwell.model_zoo.sweep.jobs import (
    Job,
    Limits,
    Task,
    Variant,
    digest,
    python_text,
    source_hash,
    source_of,
    tasks_of,
    version_of,
)
from stepwell.model_zoo.sweep.rows import FAULTS, UNFIT, Row
from stepwell.model_zoo.sweep.store import Store
from stepwell.plugins.plugins import registry
from stepwell.quantization.quantizers import quantizer_for
from stepwell.targets.table import find_target

STORE = Path("sweep.sqlite")
"""Default path of the store of rows."""

Progress = Callable[[int, int, Sequence[Row]], None]
"""Called with (jobs done, all jobs, new rows); at the start with the stored rows."""


@dataclass(frozen=True)
class Sweep(Shown):
    """The rows of a sweep, and the number of rows that were computed now.

    Attributes:
        rows: the rows, one per job.
        computed: the number of rows that the store did not have.
    """

    rows: tuple[Row, ...]
    computed: int

    @property
    def ok(self) -> bool:
        """Whether no result is wrong, and no process aborted or raised an unexpected exception."""
        return not any(row.outcome in FAULTS for row in self.rows)

    def __str__(self) -> str:
        return self.render("text")


def sweep(
    models: str | Sequence[str] = "*",
    targets: str | Sequence[str] = "xnnpack",
    *,
    options: Mapping[str, Any] | None = None,
    quantize: str | None = None,
    dtype: str | None = None,
    symbolic: bool = False,
    payload: str | None = None,
    latency: bool = False,
    stock: bool = False,
    tune: str | PathLike[str] | None = None,
    store: str | PathLike[str] = STORE,
    workers: int = 1,
    scheduler: str | None = None,
    limits: Limits | None = None,
    again: Sequence[str] = (),
    progress: Progress | None = None,
) -> Sweep:
    """Lower each model to each target once, and compare the results with eager PyTorch.

    Args:
        models: names of the zoo with wildcards (`timm/*`; `!operators/*` excludes), and
            `file.py:callable`.
        targets: as for `stepwell.lower`.
        options: as for `stepwell.lower`; each target gets the ones that it accepts.
        quantize: `int8` (the target's own quantizer) or the name of a quantizer.
        dtype: cast floats to this type first.
        symbolic: export with symbolic sizes.
        payload: convert linear layers to this MX payload.
        latency: time the artifacts (xnnpack), on quiet workers, one at a time.
        stock: run ExecuTorch's own flow in addition (xnnpack).
        tune: measure close alternatives of the cost model (xnnpack) on quiet workers, and write the
            winners into this table for `lower(..., tuned=…)`.
        store: an SQLite file; rows in it are not computed again.
        workers: the number of workers of a cluster on this machine.
        scheduler: the address of a running scheduler, instead of a new cluster.
        limits: the limits of each job.
        again: the outcomes whose stored rows are computed again (`lost`).
        progress: called with new rows.

    Raises:
        StepwellError: a name is unknown, or the cluster or the store cannot be used.
    """
    named = [models] if isinstance(models, str) else list(models)
    wanted = [targets] if isinstance(targets, str) else list(targets)
    variant = Variant(quantize, dtype, symbolic, payload)
    needs_fork("a sweep")
    extras = latency, stock, tune is not None
    chosen = {target: options_of(target, options) for target in wanted} if options else {}
    asked = named_by_content(named, wanted, variant, chosen, *extras)
    with Store(Path(store)) as base:
        kept = base.answer(asked)
        if kept is not None and not any(row.outcome in again for row in kept):
            (progress or _silent)(len(kept), len(kept), kept)
            found = Sweep(kept, 0)
        else:
            entries = {entry.name: entry for entry in select(named)}
            jobs = [
                job_of(name, t, variant, options or {}, *extras) for name in entries for t in wanted
            ]
            found = run_jobs(
                base, jobs, entries, workers, scheduler, limits or Limits(), again, progress
            )
            base.remember(asked, [row.key for row in found.rows])
    if tune is not None:
        from stepwell.cost_model.tuning import table_of, write_table

        measured = [row.tuned["measured"] for row in found.rows if row.tuned is not None]
        write_table(Path(tune), table_of(measured))
    return found


def job_of(
    model: str,
    target: str,
    variant: Variant,
    options: Mapping[str, Any],
    latency: bool = False,
    stock: bool = False,
    tune: bool = False,
) -> Job:
    """Create one job, with its arguments checked.

    Raises:
        StepwellError: an argument is invalid.
    """
    if (latency or stock or tune) and target != "xnnpack":
        raise StepwellError(
            f"latency, stock and tune are measured for xnnpack only, not for {target!r}",
            help="omit these options, or sweep xnnpack separately",
        )
    chosen = options_of(target, options)
    recipe = quantizer_for(variant.quantize, target) if variant.quantize else None
    own = Variant(recipe, variant.dtype, variant.symbolic, variant.payload)
    return Job(model, target, tuple(sorted(chosen.items())), own, latency, stock, tune)


def options_of(target: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a target by name, each checked.

    Raises:
        StepwellError: the target is unknown, or has no such option.
    """
    return find_target(target).chosen(options)


def run_jobs(
    base: Store,
    jobs: Sequence[Job],
    entries: dict[str, Entry],
    workers: int,
    scheduler: str | None,
    limits: Limits,
    again: Sequence[str],
    progress: Progress | None,
) -> Sweep:
    """Run the jobs of a sweep whose rows are not in the store yet, and store their rows."""
    keys = {job: job.key(source_of(entries[job.model])) for job in jobs}
    kept = base.get(list(keys.values()))
    kept = {key: row for key, row in kept.items() if row.outcome not in again}
    missing = [job for job in jobs if keys[job] not in kept]
    tell = progress or _silent
    rows = dict(kept)
    tell(len(rows), len(jobs), tuple(kept.values()))

    def done(task: Task, given: list[dict[str, Any]]) -> None:
        found = [Row.from_json(one) for one in given]
        base.put(found)
        rows.update({row.key: row for row in found})
        tell(len(rows), len(jobs), found)

    if missing:
        place = nullcontext(scheduler) if scheduler else local_cluster(workers)
        with place as address:
            run_tasks(address, tasks_of(missing, entries), limits, done)
    held = tuple(rows[keys[job]] for job in jobs if keys[job] in rows)
    return Sweep(held, len(missing))


def _silent(done: int, of: int, rows: Sequence[Row]) -> None:
    """Ignore progress messages (the default)."""


def counts(rows: Sequence[Row]) -> Counter[str]:
    """Return the number of rows for each outcome."""
    return Counter(row.outcome for row in rows)


def fit(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of models that torch can export."""
    return [row for row in rows if row.outcome not in UNFIT]


__all__ = ["Progress", "Sweep", "counts", "find", "fit", "sweep"]


def named_by_content(
    models: Sequence[str],
    targets: Sequence[str],
    variant: Variant,
    options: Mapping[str, Mapping[str, Any]],
    latency: bool,
    stock: bool,
    tune: bool,
) -> str:
    """Return a name for a request that depends on everything that determines its rows.

    Args:
        models: the patterns, as for `catalogue.select`.
        targets: the names of the targets.
        variant: the preparation of each model.
        options: the resolved options of each target.
        latency, stock, tune: the requested measurements.
    """
    libraries = sorted({name for needed in SOURCES.values() for name in needed})
    folders = [file.parent for name in models if (file := python_file(name)) is not None]
    said = {
        "models": models,
        "targets": targets,
        "variant": asdict(variant),
        "options": options,
        "measured": (latency, stock, tune),
        "source": source_hash(_any),
        "libraries": [f"{name} {version_of(name)}" for name in libraries],
        "files": [python_text(folder) for folder in (*folders, FOLDER)],
        "plugins": registry().identity(),
    }
    return digest(json.dumps(said, sort_keys=True, default=str))


def _any(path: str) -> bool:
    return True
