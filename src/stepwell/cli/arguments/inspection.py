"""Add the arguments of the commands that show, run and check programs."""

import argparse
from pathlib import Path

from stepwell.cli.arguments.common import (
    FILE,
    FLAG,
    SEVERAL,
    add_model,
    add_model_options,
    add_target,
)

EDITOR = "vscode://file/{path}:{line}"
"""The URL that opens a file at a line; other editors have their own."""


def show(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments of `stepwell show` to a parser."""
    add = parser.add_argument
    add("model", help=".pt2, .mlir, .pte, .tosa, .vgf, a plug-in's artifact, or file.py:callable")
    add_model_options(parser)
    add("--largest", **FLAG, help="read a .pte at the largest sizes it declares")
    add_target(parser, default=None)
    add("--summary", **FLAG, help="tables instead of text")
    add("--locations", **FLAG, help="print node names and source lines")
    add("--generic", **FLAG, help="MLIR's generic form")
    add("--html", **FILE, help="write one self-contained page")
    add("--profile", **FLAG, help="run it; the page shows each op's time (xnnpack)")
    add(
        "--difference",
        **FLAG,
        help="run it op by op; the page shows the difference of each op from eager",
    )
    add(
        "--overlay",
        **SEVERAL,
        **FILE,
        help="numbers to show on the graph, as Model Explorer's node data (JSON)",
    )
    add(
        "--beside",
        metavar="MODEL",
        help="another program to compare with on the page, in text and graph",
    )
    add("--open", **FLAG, help="open the page that --html wrote")
    add(
        "--editor",
        default=EDITOR,
        metavar="ADDRESS",
        help=f"what links to source lines open ({EDITOR}); none: no links, for a page to share",
    )
    add("--dot", **FILE, help="write Graphviz")
    add("--model-explorer", **FILE, help="write JSON for Model Explorer")
    add(
        "--method", default="forward", help="method for --dot, --profile and --difference (forward)"
    )
    add(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="color of the text (auto: on a terminal)",
    )


def explain(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments of `stepwell explain` to a parser."""
    add_model(parser)
    add_target(parser)
    add = parser.add_mutually_exclusive_group().add_argument
    add("--outside", **FLAG, help="only the ops that are left to kernels")
    add("--memory", **FLAG, help="the plan of a .pte's arena over time instead")
    add("--deploy", **FLAG, help="what an application needs to run the .pte, instead")
    add(
        "--costs",
        nargs=2,
        metavar="CPU",
        help="which decisions the costs of two CPUs take differently, instead",
    )
    add(
        "--optimum",
        nargs="?",
        type=int,
        const=64,
        metavar="N",
        help="whether one of N programs equal by proved rules is lowered to a cheaper one, instead",
    )


def run(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments of `stepwell run` to a parser."""
    add = parser.add_argument
    add(
        "artifact",
        help="any .pte, .tosa, .vgf or a plug-in's artifact, run on its engine; .mlir in the "
        "interpreter",
    )
    add("--method", default="forward", help="which method to call (forward)")
    add("--seed", type=int, default=0, help="seed of the random inputs (0)")
    add("--cpu", help="an Arm64 core to emulate: cortex-a76, … (docs/arm64.md)")
    add("--profile", **FLAG, help="time each op of a .pte instead")
    add("--etrecord", **FILE, help="ETRecord of the lowering, for names and source lines")
    add("--repeat", type=int, default=20, help="number of calls for --profile (20)")


def play(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments of `stepwell play` to a parser."""
    add = parser.add_argument
    add(
        "model",
        nargs="?",
        help="a MODEL, an artifact, a .play file, or a shared link (a small program)",
    )
    add_model_options(parser)
    add_target(parser)
    add("--port", type=int, default=0, help="port of the loopback address (a free one)")
    add("--open", **FLAG, help="open the page in a browser")


def check(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments of `stepwell check` to a parser."""
    add = parser.add_argument
    add_model(parser)
    add_target(parser)
    add("--prove", **FLAG, help="also prove or test each application")
    add("--seed", type=int, default=0, help="seed of the random samples (0)")
    add("--no-artifact", **FLAG, help="stop before the artifact")
    add("--engine", help="also special values on a family of CPUs: xnnpack/avx2, …")
    add("--html", **FILE, help="write the result as a page")


def validate(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments of `stepwell validate` to a parser."""
    add = parser.add_argument
    add("artifact", type=Path, help=".pte, .bpte, .tosa or .vgf of any flow")
    add("model", help="what it was made from: a MODEL, or another artifact")
    add_model_options(parser)
    add("--inputs", metavar="INPUTS", help="data.py:batches, or an .npz of arrays in order")
    add("--external", **FILE, help="the .ptd with the artifact's weights")
    add(
        "--recorded",
        **FILE,
        help="what a device computed on the first inputs: .npz (output_0, …), or an ETDump",
    )
    add("--special-values", **FLAG, help="also infinities, NaN, denormal numbers, overflow")
    add("--ranges", metavar="image:0..1", help="ranges of inputs that the lowering declared")
    add("--seed", type=int, default=0, help="seed of the random samples (0)")
    add("--script", **FILE, help="write a script that shows the fault without the model")
    add("--html", **FILE, help="write a page with both programs side by side")
    add("--junit", **FILE, help="write the verdict as JUnit's XML")


def prove(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments of `stepwell prove` to a parser."""
    add = parser.add_argument
    add("rules", nargs="*", metavar="RULE", help="names of rules (all)")
    add("--guards", **FLAG, help="drop each condition in turn")
    add("--tests", type=Path, metavar="FOLDER", help="counterexamples as tests")
    add("--keep", **FLAG, help="store the verdicts, which certificates use")
    add("--jobs", type=int, metavar="N", help="number of concurrent rules (number of cores)")
    add(
        "--seconds",
        type=float,
        default=300.0,
        metavar="N",
        help="for all of them (300); then they are open",
    )
    add("--new", **FLAG, help="only rules of which no proof is kept")
    add("--table", **FILE, help="write a page's table anew")


def discover(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments of `stepwell discover` to a parser."""
    add = parser.add_argument
    add("grammars", nargs="*", metavar="TARGET/NAME", help="grammars of --list (all)")
    add("--list", **FLAG, help="list the grammars, and do nothing else")
    add("--state", type=Path, default=Path("discovered"), metavar="FOLDER",
        help="results by grammar, from which a later run continues (discovered)")  # fmt: skip
    add("--terms", type=int, default=1_000_000, metavar="N", help="of each grammar (1000000)")
    add("--candidates", type=int, default=400, metavar="N",
        help="of each grammar that are lowered and proved, the smallest first (400)")  # fmt: skip
    add("--jobs", type=int, default=1, metavar="N", help="number of worker processes (1)")
    add("--rules", **FILE, help="write the proved rules that are new, as text")
    add("--table", **FILE, help="write a page's results anew")


def verify_certificate(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments of `stepwell verify-certificate` to a parser."""
    add = parser.add_argument
    add("certificate", **FILE, help="from `lower --certify`")
    add(
        "program",
        nargs="?",
        type=Path,
        metavar="PROGRAM",
        help="the .mlir of `lower --emit-ir` that it must certify, with its weights file",
    )
    add(
        "--source",
        metavar="MODEL",
        help="the lowered model, as for `lower`: it must be the first program",
    )
    add("--seed", type=int, help="seed of the variables; random by default")


def reduce(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments of `stepwell reduce` to a parser."""
    add = parser.add_argument
    add("file", type=Path, help="a reproducer, or with -p or --test any .mlir")
    add("-p", "--passes", help="the failing pass, if the file has no header")
    add(
        "--test",
        metavar="COMMAND",
        help="exits with 0 if the program in the file ({}, or the last argument) is interesting",
    )
    add("--trust", **FLAG, help="load the files that the reproducer names")
    add("-o", "--output", **FILE, help="the file to write (FILE.small.mlir)")
