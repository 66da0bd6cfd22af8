"""Commands of the command line, one module each: `add_arguments(parser)` and `run(arguments)`."""

from __future__ import annotations

import argparse
from typing import Any


def add_model(parser: argparse.ArgumentParser) -> None:
    """The argument `MODEL`, as every command that takes one says it."""
    parser.add_argument("model", help=".pt2, .mlir, or file.py:callable")
    parser.add_argument("--trust", action="store_true", help="unpickle a .pt2's sample inputs")


def add_target(parser: argparse.ArgumentParser) -> None:
    """The option `-t TARGET`."""
    parser.add_argument(
        "-t",
        "--target",
        default="xnnpack",
        help="xnnpack (what is meant without this option), cortex-m55, tosa-1.0+fp, ...",
    )
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The option `-O NAME=VALUE`."""
    parser.add_argument(
        "-O",
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the target, as in Python (docs/options.md); may stand several times",
    )


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `-O` said, for the target that is named.

    Raises:
        StepwellError: the target or an option is unknown.
    """
    from stepwell.targets import find_target

    return find_target(arguments.target).read_options(arguments.option)
