"""`stepwell replay BASE..HEAD`: compare the lowering of a fixed set of programs by two commits."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from stepwell.cli.terminal.outcome import Outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "span", nargs="?", help="BASE..HEAD; the base is the last release unless it is named"
    )
    parser.add_argument(
        "-m",
        "--model",
        action="append",
        default=[],
        help="models of the zoo, with wildcards (examples/*)",
    )
    parser.add_argument(
        "-t",
        "--target",
        action="append",
        default=[],
        help="(xnnpack and tosa-1.0+fp; what a program is quantized for)",
    )
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="folder of cached results")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--exit-code", action="store_true", help="exit with 1 if any program changed"
    )


def run(arguments: argparse.Namespace) -> Outcome:
    """Lower with both commits and print the table."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    from stepwell.model_zoo.regression.replay import MODELS, replay
    from stepwell.plugins.plugins import handed_on

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
