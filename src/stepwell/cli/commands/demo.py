"""`stepwell demo`: lower and run a real model."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepwell.cli.terminal.outcome import Outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        default=Path("deit_tiny.pte"),
        help="path of the .pte (deit_tiny.pte)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="neither check the passes nor measure the stock flow"
    )


def run(arguments: argparse.Namespace) -> Outcome:
    """Lower DeiT-Tiny, run it, compare; exit with 1 if it differs from PyTorch."""
    from stepwell.cli.demo import demo

    figures = demo(arguments.output, arguments.quick)
    return Outcome(figures, [arguments.output], 0 if figures["right"] else 1)
