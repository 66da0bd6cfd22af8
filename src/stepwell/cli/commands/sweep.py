"""`stepwell sweep MODELS -t TARGET`: lower and check many models."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live

from stepwell.cli.terminal.outcome import Outcome
from stepwell.ir.diagnostics import StepwellError
from stepwell.model_zoo.catalogue.models import select
from stepwell.model_zoo.sweep import Limits
from stepwell.model_zoo.sweep.driver import sweep
from stepwell.model_zoo.sweep.rows import OUTCOMES
from stepwell.model_zoo.sweep.store import Store
from stepwell.model_zoo.sweep.tables import LiveTable
from stepwell.plugins.plugins import handed_on
from stepwell.targets.table import find_target

if TYPE_CHECKING:
    from stepwell.model_zoo.sweep.rows import Row

PASSED = "quantize dtype symbolic payload latency stock tune store workers scheduler again".split()
"""The arguments of the command line that `sweep` takes unchanged."""


def run(arguments: argparse.Namespace) -> Outcome:
    """Run the sweep, print the table, and exit with 1 if a result is wrong or a process died."""
    if arguments.list:
        entries = [{"name": entry.name, "kind": entry.kind} for entry in select(arguments.models)]
        for entry in entries:
            print(f"{entry['name']}  ({entry['kind']})")
        return Outcome({"models": entries})
    if arguments.report:
        rows = write_reports(arguments.store, arguments.report)
        return Outcome({"rows": rows}, arguments.report)
    if unknown := sorted({*arguments.again} - {*OUTCOMES}):
        raise StepwellError(
            f"outcome {unknown[0]!r} is unknown", help="outcomes are " + ", ".join(OUTCOMES)
        )
    if arguments.load and arguments.scheduler:
        raise StepwellError(
            "--load has no effect on workers of another scheduler",
            help="start its workers with STEPWELL_LOAD=FILE, or install the plug-in there",
        )
    targets = arguments.target or ["xnnpack"]
    options = read_options(targets, arguments.option) if arguments.option else {}
    shown = LiveTable()
    console = Console(stderr=True)
    try:
        live = Live(shown, console=console, refresh_per_second=2, transient=True)
        with handed_on(arguments.load), live:
            found = sweep(
                arguments.models,
                targets,
                options=options,
                limits=Limits(arguments.seconds, int(arguments.memory * (1 << 30))),
                progress=shown.update,
                **{name: getattr(arguments, name) for name in PASSED},
            )
    except KeyboardInterrupt:
        print(f"\nstopped: {len(shown.rows)} rows are kept in {arguments.store}; the same command "
              "goes on from there", file=sys.__stderr__)  # fmt: skip
        raise
    print(found, end="")
    print(f"{len(found.rows)} rows, {found.computed} of them computed now, in {arguments.store}")
    return Outcome(found, [arguments.store], 0 if found.ok else 1)


def read_options(targets: Sequence[str], texts: Sequence[str]) -> dict[str, Any]:
    """Parse `name=value` options that every target must accept.

    Raises:
        StepwellError: a target is unknown, or does not accept an option.
    """
    return {
        name: value
        for target in targets
        for name, value in find_target(target).read_options(texts).items()
    }


def write_reports(store: Path, paths: Sequence[Path]) -> Sequence[Row]:
    """Write the newest rows of a store into documents.

    Raises:
        StepwellError: there is no such store, or a document has no markers for them.
    """
    from stepwell.model_zoo.sweep.report import write

    if not store.exists():
        raise StepwellError(
            f"the store {store} does not exist", help="--store FILE names the store"
        )
    with Store(store) as base:
        rows = base.latest()
    for path in paths:
        write(path, rows)
        print(f"{path}: {len(rows)} rows")
    return rows
