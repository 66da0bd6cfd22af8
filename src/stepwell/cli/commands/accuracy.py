"""`stepwell accuracy MODEL -t TARGET --data FILE`: which stage and layer lose accuracy, and why."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepwell.cli.commands import add_target, options_of
from stepwell.cli.terminal.completing import completed_by, quantizers
from stepwell.cli.terminal.outcome import Outcome
from stepwell.cli.terminal.progress import stepping
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import write_atomically

CURES = "mixing,clipping,balancing,scales,rounding,biases,distilling"
"""The names of recovery methods; `stepwell.quantization.recovery` has them, but imports torch."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
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


def run(arguments: argparse.Namespace) -> Outcome:
    """Measure accuracy, and print the summary and the tables."""
    from stepwell.loaders.factories import made_by, named
    from stepwell.loaders.models import open_model
    from stepwell.quantization.sensitivity.measure import accuracy

    if arguments.levels < 0:
        raise StepwellError("--levels is a count of batches", help="0 leaves the levels out")
    data, fit = made_by(arguments.data), arguments.fit and made_by(arguments.fit)
    metric = arguments.metric and named(arguments.metric)
    opened = open_model(arguments.model, trust=arguments.trust)
    with stepping(f"measuring {opened.name}") as tell:
        found = accuracy(
            opened.module if opened.module is not None else opened.program,
            arguments.target,
            data,
            metric or None,
            quantize=arguments.quantize,
            cures=tuple(arguments.cures.split(",")) if arguments.cures else (),
            fit=fit or None,
            budget=arguments.budget and _budget(arguments.budget),
            levels=arguments.levels,
            resume=arguments.resume,
            progress=tell,
            **options_of(arguments),
        )
    print(found)
    if arguments.html:
        write_atomically(arguments.html, found.to_html().encode())
    return Outcome(found.to_dict(), [arguments.html] if arguments.html else [])


def _budget(text: str) -> tuple[float, str]:
    limit, _, what = text.partition(":")
    try:
        return float(limit), what or "bits"
    except ValueError:
        raise StepwellError(
            f"--budget {text}: {limit!r} is no number", help="--budget 4.5:bits, 100000:bytes"
        ) from None
