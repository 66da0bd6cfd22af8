"""Commands of the command line, one module each: `add_arguments(parser)` and `run(arguments)`."""

from __future__ import annotations

import argparse


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
