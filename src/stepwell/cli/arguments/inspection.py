"""Arguments of the commands that show, run and check programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepwell.cli.arguments.common import add_model, add_model_options, add_target

EDITOR = "vscode://file/{path}:{line}"
"""The URL that opens a file at a line; other editors have their own."""


def show(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `show`."""
    parser.add_argument(
        "model", help=".pt2, .mlir, .pte, .tosa, .vgf, a plug-in's artifact, or file.py:callable"
    )
    add_model_options(parser)
    parser.add_argument(
        "--largest", action="store_true", help="read a .pte at the largest sizes it declares"
    )
    add_target(parser, default=None)
    parser.add_argument("--summary", action="store_true", help="tables instead of text")
    parser.add_argument(
        "--locations", action="store_true", help="print node names and source lines"
    )
    parser.add_argument("--generic", action="store_true", help="MLIR's generic form")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one self-contained page")
    parser.add_argument(
        "--profile", action="store_true", help="run it; the page shows each op's time (xnnpack)"
    )
    parser.add_argument(
        "--difference",
        action="store_true",
        help="run it op by op; the page shows the difference of each op from eager",
    )
    parser.add_argument(
        "--overlay",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="numbers to show on the graph, as Model Explorer's node data (JSON)",
    )
    parser.add_argument(
        "--beside",
        metavar="MODEL",
        help="another program to compare with on the page, in text and graph",
    )
    parser.add_argument("--open", action="store_true", help="open the page that --html wrote")
    parser.add_argument(
        "--editor",
        default=EDITOR,
        metavar="ADDRESS",
        help=f"what links to source lines open ({EDITOR}); none: no links, for a page to share",
    )
    parser.add_argument("--dot", type=Path, metavar="FILE", help="write Graphviz")
    parser.add_argument(
        "--model-explorer", type=Path, metavar="FILE", help="write JSON for Model Explorer"
    )
    parser.add_argument(
        "--method", default="forward", help="method for --dot, --profile and --difference (forward)"
    )
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="color of the text (auto: on a terminal)",
    )


def explain(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `explain`."""
    add_model(parser)
    add_target(parser)
    parser.add_argument(
        "--outside", action="store_true", help="only the ops that are left to kernels"
    )
    parser.add_argument(
        "--memory", action="store_true", help="the plan of a .pte's arena over time instead"
    )
    parser.add_argument(
        "--costs",
        nargs=2,
        metavar="CPU",
        help="which decisions the costs of two CPUs take differently, instead",
    )
    parser.add_argument(
        "--optimum",
        nargs="?",
        type=int,
        const=64,
        metavar="N",
        help="whether one of N programs equal by proved rules is lowered to a cheaper one, instead",
    )


def run(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `run`."""
    parser.add_argument(
        "artifact",
        help="any .pte, .tosa, .vgf or a plug-in's artifact, run on its engine; .mlir in the "
        "interpreter",
    )
    parser.add_argument("--method", default="forward", help="which method to call (forward)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs (0)")
    parser.add_argument("--cpu", help="an Arm64 core to run a .pte on: cortex-a76, … (make arm64)")
    parser.add_argument("--profile", action="store_true", help="time each op of a .pte instead")
    parser.add_argument(
        "--etrecord",
        type=Path,
        metavar="FILE",
        help="ETRecord of the lowering, for names and source lines",
    )
    parser.add_argument("--repeat", type=int, default=20, help="number of calls for --profile (20)")


def play(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `play`."""
    parser.add_argument(
        "model",
        nargs="?",
        help="a MODEL, an artifact, a .play file, or a shared link (a small program)",
    )
    add_model_options(parser)
    add_target(parser)
    parser.add_argument(
        "--port", type=int, default=0, help="port of the loopback address (a free one)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")


def check(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `check`."""
    add_model(parser)
    add_target(parser)
    parser.add_argument("--prove", action="store_true", help="also prove or test each application")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random samples (0)")
    parser.add_argument("--no-artifact", action="store_true", help="stop before the artifact")
    parser.add_argument("--engine", help="also special values on a family of CPUs: xnnpack/avx2, …")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the result as a page")


def prove(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `prove`."""
    parser.add_argument("rules", nargs="*", metavar="RULE", help="names of rules (all)")
    parser.add_argument("--guards", action="store_true", help="drop each condition in turn")
    parser.add_argument("--tests", type=Path, metavar="FOLDER", help="counterexamples as tests")
    parser.add_argument(
        "--keep", action="store_true", help="store the verdicts, which certificates use"
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="number of concurrent rules (number of cores)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=300.0,
        metavar="N",
        help="for all of them (300); then they are open",
    )
    parser.add_argument("--new", action="store_true", help="only rules of which no proof is kept")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write a page's table anew")


def verify_certificate(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `verify-certificate`."""
    parser.add_argument("certificate", type=Path, metavar="FILE", help="from `lower --certify`")
    parser.add_argument(
        "program",
        nargs="?",
        type=Path,
        metavar="PROGRAM",
        help="the .mlir of `lower --emit-ir` that it must certify, with its weights file",
    )
    parser.add_argument(
        "--source",
        metavar="MODEL",
        help="the lowered model, as for `lower`: it must be the first program",
    )
    parser.add_argument("--seed", type=int, help="seed of the variables; random by default")


def reduce(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `reduce`."""
    parser.add_argument("file", type=Path, help="a reproducer, or with -p or --test any .mlir")
    parser.add_argument("-p", "--passes", help="the failing pass, if the file has no header")
    parser.add_argument(
        "--test",
        metavar="COMMAND",
        help="exits with 0 if the program in the file ({}, or the last argument) is interesting",
    )
    parser.add_argument(
        "--trust", action="store_true", help="load the files that the reproducer names"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the file to write (FILE.small.mlir)"
    )
