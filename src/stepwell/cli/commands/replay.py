"""`stepwell replay BASE..HEAD`: compare the lowering of a fixed set of programs by two commits."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stepwell.cli.terminal.outcome import Outcome
from stepwell.model_zoo.regression.replay import MODELS, replay
from stepwell.plugins.plugins import handed_on


def run(arguments: argparse.Namespace) -> Outcome:
    """Lower with both commits and print the table."""
    columns = (
        TextColumn("{task.description:48}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )  # fmt: skip
    console = Console(stderr=True)
    with handed_on(arguments.load), Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)

        def show(what: str, number: int, of: int) -> None:
            progress.update(task, description=what, completed=number, total=of)

        found = replay(
            arguments.span,
            arguments.model or MODELS,
            arguments.target,
            cache=arguments.cache,
            workers=arguments.workers,
            tell=show,
        )
    print(found, end="")
    changed = [f"{pair.name} {pair.target}" for pair in found.changed]
    result = {**vars(found), "changed": changed}
    return Outcome(result, (), 1 if arguments.exit_code and changed else 0)
