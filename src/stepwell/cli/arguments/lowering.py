"""Arguments of the commands that lower and measure models."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from stepwell.cli.arguments.common import add_language, add_model, add_options, add_target
from stepwell.cli.terminal.completing import completed_by, quantizers, targets


def lower(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `lower`."""
    add_model(parser)
    add_language(parser)
    add_target(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="artifact to write; .h or .c: a C array; .mlir if the lowering stops early",
    )
    parser.add_argument(
        "--emit-ir",
        type=Path,
        metavar="FILE",
        help="also write the target-level IR as text, with a weights file",
    )
    parser.add_argument(
        "--dynamic",
        action="append",
        default=[],
        metavar="KIND[=MOST]",
        help="dynamic sizes: batch, sequence, image, all, up to a size (docs/dynamic_shapes.md)",
    )
    parser.add_argument("--sizes", help="pin symbolic sizes: max, 4, or s77=4,s31=8")
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare before and after every pass, and fail on a difference",
    )
    parser.add_argument(
        "--certify",
        type=Path,
        metavar="FILE",
        help="prove or test each application, and write the certificate (docs/proofs.md)",
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="LEVEL",
        help="the stage of the program, if its attribute does not apply (docs/levels.md)",
    )
    parser.add_argument(
        "--raise",
        dest="up",
        action="store_true",
        help="first raise a program of another target's level to aten (docs/levels.md)",
    )
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument("--to", metavar="LEVEL", help="stop at a stage: plain, nodes, operators, …")
    ends.add_argument("--stop-after", metavar="STEP", help="stop after a pass")
    parser.add_argument(
        "--etrecord",
        type=Path,
        metavar="FILE",
        help="also write the ETRecord for ExecuTorch's Inspector (xnnpack)",
    )


def emit(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `emit`."""
    add_model(parser)
    add_target(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", required=True, help="artifact to write"
    )
    parser.add_argument("--from", dest="start", metavar="LEVEL", help="the stage of the program")


def demo(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `demo`."""
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


CURES = "mixing,clipping,balancing,scales,rounding,biases,distilling"
"""The names of recovery methods; `stepwell.quantization.recovery` has them, but imports torch."""


def accuracy(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `accuracy`."""
    parser.add_argument("model", help="file.py:callable; a .pt2 or .mlir for payloads of MX")
    add_target(parser)
    data = "file.py:callable that returns batches, each (inputs, labels)"
    parser.add_argument("--data", metavar="FILE", required=True, help=data)
    parser.add_argument("--fit", metavar="FILE", help="batches to calibrate and fit cures on")
    parser.add_argument(
        "--metric",
        metavar="FILE",
        help="file.py:function of outputs and labels: a score for each sample (right classes)",
    )
    quantize = parser.add_argument(
        "--quantize", metavar="NAME", help="a quantizer, or an MX payload (the target's own)"
    )
    completed_by(quantize, quantizers)
    parser.add_argument("--cures", metavar="NAME,…", help=f"of {CURES}")
    parser.add_argument(
        "--budget", metavar="NUMBER:WHAT", help="for mixing: 4.5:bits a number (it), bytes, arena"
    )
    parser.add_argument(
        "--levels",
        type=int,
        default=1,
        metavar="N",
        help="number of batches for levels and artifact (1)",
    )
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="store measurements there, and reuse them"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the result as a page")
    parser.add_argument("--trust", action="store_true", help="unpickle a .pt2's sample inputs")


def budget(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `budget`."""
    parser.add_argument(
        "model", nargs="?", help="only this program of the file (all); or one to --write"
    )
    parser.add_argument(
        "--file",
        type=Path,
        default=Path("stepwell-budget.toml"),
        help="the committed file (stepwell-budget.toml)",
    )
    parser.add_argument("--write", action="store_true", help="set the figures to the measured ones")
    parser.add_argument(
        "--latency",
        action="store_true",
        help="--write the ratio to ExecuTorch's own flow too, with some slack (xnnpack)",
    )
    target = parser.add_argument("-t", "--target", help="target of MODEL (xnnpack)")
    completed_by(target, targets)
    add_options(parser, "option of its target")
    quantize = parser.add_argument(
        "--quantize", metavar="NAME", help="quantize the module of MODEL first"
    )
    completed_by(quantize, quantizers)


def sweep(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `sweep`."""
    parser.add_argument(
        "models",
        nargs="*",
        default=["*"],
        help="names in the zoo with wildcards (timm/*; '!operators/*' excludes), file.py:name",
    )
    parser.add_argument(
        "-t", "--target", action="append", default=[], help="may be repeated (xnnpack)"
    )
    add_options(parser, "an option of every target named (docs/options.md)")
    parser.add_argument("--quantize", help="int8 (the target's own quantizer), int8-xnnpack, ...")
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), help="cast floats first")
    parser.add_argument("--symbolic", action="store_true", help="export with symbolic sizes")
    parser.add_argument("--payload", help="linear layers in this MX payload: fp8e4m3, ...")
    parser.add_argument("--latency", action="store_true", help="time the artifacts (xnnpack)")
    parser.add_argument(
        "--stock", action="store_true", help="also measure the stock flow (xnnpack)"
    )
    parser.add_argument(
        "--tune", type=Path, metavar="FILE", help="measure close choices into a table (xnnpack)"
    )
    parser.add_argument(
        "--store", type=Path, default=Path("sweep.sqlite"), metavar="FILE", help="(sweep.sqlite)"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="on this machine")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="a running Dask cluster instead")
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit of a job (300)")
    parser.add_argument(
        "--memory", type=float, default=8.0, help="memory limit of a job in GiB (8)"
    )
    parser.add_argument(
        "--again",
        action="append",
        default=[],
        metavar="OUTCOME",
        help="recompute rows with this outcome",
    )
    parser.add_argument(
        "--report",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="only write the stored rows into a .md or a .html",
    )
    parser.add_argument("--list", action="store_true", help="list the models and stop")


def replay(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `replay`."""
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
