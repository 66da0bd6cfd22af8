"""Add the arguments of the commands that lower and measure models."""

import argparse
import os
from pathlib import Path

from stepwell.cli.arguments.common import (
    FILE,
    FLAG,
    SEVERAL,
    add_language,
    add_model,
    add_options,
    add_target,
)
from stepwell.cli.terminal.completing import completed_by, quantizers, targets


def lower(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments of `stepwell lower` to a parser."""
    add = parser.add_argument
    add_model(parser)
    add_language(parser)
    add_target(parser)
    add(
        "-o",
        "--output",
        **FILE,
        help="artifact to write: a file; for the targets c, and with -O project=NAME, a folder of "
        "C without a runtime; .h or .c, for the targets cortex-m: the .pte as a C array; .mlir if "
        "the lowering stops early",
    )
    add("--emit-ir", **FILE, help="also write the target-level IR as text, with a weights file")
    add(
        "--dynamic",
        **SEVERAL,
        metavar="KIND[=MOST]",
        help="dynamic sizes: batch, sequence, image, all, or x:1 (axis 1 of x); x:1=1600 is up to "
        "1600 (docs/dynamic_shapes.md)",
    )
    add("--sizes", help="pin symbolic sizes: max, 4, or s77=4,s31=8")
    add("--buckets", help="a method for each upper bound of a size: 64,1024, or s77=64,1024")
    add("--check", **FLAG, help="compare before and after every pass, and fail on a difference")
    add(
        "--certify",
        **FILE,
        help="prove or test each application, and write the certificate (docs/proofs.md)",
    )
    add(
        "--from",
        dest="start",
        metavar="LEVEL",
        help="the stage of the program, if its attribute does not apply (docs/levels.md)",
    )
    add(
        "--raise",
        **FLAG,
        dest="up",
        help="first raise a program of another target's level to aten (docs/levels.md)",
    )
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument("--to", metavar="LEVEL", help="stop at a stage: plain, nodes, operators, …")
    ends.add_argument("--stop-after", metavar="STEP", help="stop after a pass")
    add("--etrecord", **FILE, help="also write the ETRecord for ExecuTorch's Inspector (xnnpack)")


def emit(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments of `stepwell emit` to a parser."""
    add_model(parser)
    add_target(parser)
    parser.add_argument("-o", "--output", **FILE, required=True, help="artifact to write")
    parser.add_argument("--from", dest="start", metavar="LEVEL", help="the stage of the program")


def demo(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments of `stepwell demo`."""
    parser.add_argument(
        "-o",
        "--output",
        **FILE,
        default=Path("deit_tiny.pte"),
        help="path of the .pte (deit_tiny.pte)",
    )
    parser.add_argument(
        "--quick", **FLAG, help="neither check the passes nor measure the stock flow"
    )


CURES = "mixing,clipping,balancing,scales,rounding,biases,distilling"
"""The names of recovery methods; `stepwell.quantization.recovery` has them, but imports torch."""


def accuracy(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments of `stepwell accuracy` to a parser."""
    add = parser.add_argument
    add("model", help="file.py:callable; a .pt2 or .mlir for payloads of MX")
    add_target(parser)
    data = "file.py:callable that returns batches, each inputs or (inputs, labels), or a .npz"
    add("--data", metavar="FILE", required=True, help=data)
    add("--fit", metavar="FILE", help="batches to calibrate and fit cures on")
    add(
        "--metric",
        metavar="FILE",
        help="file.py:function of outputs and labels: a score for each sample (right classes)",
    )
    completed_by(
        add("--quantize", metavar="NAME", help="a quantizer, or an MX payload (the target's own)"),
        quantizers,
    )
    add("--cures", metavar="NAME,…", help=f"of {CURES}")
    add("--budget", metavar="NUMBER:WHAT", help="for mixing: 4.5:bits a number (it), bytes, arena")
    add(
        "--levels",
        type=int,
        default=1,
        metavar="N",
        help="number of batches for levels and artifact (1)",
    )
    add("--resume", **FILE, help="store measurements there, and reuse them")
    add("--html", **FILE, help="write the result as a page")
    add("--save", **FILE, help="write the quantized program with kept cures as a .mlir for lower")
    add("--trust", **FLAG, help="unpickle a .pt2's sample inputs")


def budget(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments of `stepwell budget` to a parser."""
    add = parser.add_argument
    add("model", nargs="?", help="only this program of the file (all); or one to --write")
    add(
        "--file",
        type=Path,
        default=Path("stepwell-budget.toml"),
        help="the committed file (stepwell-budget.toml)",
    )
    add("--write", **FLAG, help="set the figures to the measured ones")
    add(
        "--latency",
        **FLAG,
        help="--write the ratio to ExecuTorch's own flow too, with some slack (xnnpack)",
    )
    completed_by(add("-t", "--target", help="target of MODEL (xnnpack)"), targets)
    add_options(parser, "option of its target")
    completed_by(
        add("--quantize", metavar="NAME", help="quantize the module of MODEL first"), quantizers
    )


def sweep(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments of `stepwell sweep` to a parser."""
    add = parser.add_argument
    add(
        "models",
        nargs="*",
        default=["*"],
        help="names in the zoo with wildcards (timm/*; '!operators/*' excludes), file.py:name",
    )
    add("-t", "--target", **SEVERAL, help="may be repeated (xnnpack)")
    add_options(parser, "an option of every target named (docs/options.md)")
    add("--quantize", help="int8 (the target's own quantizer), int8-xnnpack, ...")
    add("--dtype", choices=("float16", "bfloat16"), help="cast floats first")
    add("--symbolic", **FLAG, help="export with symbolic sizes")
    add("--payload", help="linear layers in this MX payload: fp8e4m3, ...")
    add("--latency", **FLAG, help="time the artifacts (xnnpack)")
    add("--stock", **FLAG, help="also measure the stock flow (xnnpack)")
    add("--tune", **FILE, help="measure close choices into a table (xnnpack)")
    add("--store", **FILE, default=Path("sweep.sqlite"), help="(sweep.sqlite)")
    add("--workers", type=int, default=os.cpu_count() or 1, help="on this machine")
    add("--scheduler", metavar="ADDRESS", help="a running Dask cluster instead")
    add("--seconds", type=float, default=300.0, help="time limit of a job (300)")
    add("--memory", type=float, default=8.0, help="memory limit of a job in GiB (8)")
    add("--again", **SEVERAL, metavar="OUTCOME", help="recompute rows with this outcome")
    add("--report", **SEVERAL, **FILE, help="only write the stored rows into a .md or a .html")
    add("--list", **FLAG, help="list the models and stop")


def replay(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments of `stepwell replay` to a parser."""
    add = parser.add_argument
    add("span", nargs="?", help="BASE..HEAD; the base is the last release unless it is named")
    add("-m", "--model", **SEVERAL, help="models of the zoo, with wildcards (examples/*)")
    add(
        "-t",
        "--target",
        **SEVERAL,
        help="(xnnpack and tosa-1.0+fp; what a program is quantized for)",
    )
    add("--cache", type=Path, metavar="FOLDER", help="folder of cached results")
    add("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    add("--exit-code", **FLAG, help="exit with 1 if any program changed")
