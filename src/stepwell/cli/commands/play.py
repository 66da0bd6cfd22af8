"""`stepwell play [MODEL]`: a page for experiments with a program, its passes and rules."""

import argparse
import sys
import webbrowser
from pathlib import Path

from stepwell.cli.terminal.outcome import Outcome
from stepwell.cli.terminal.progress import waiting
from stepwell.cli.terminal.quantization import quantization_of
from stepwell.cli.terminal.sources import open_source
from stepwell.inspection.playground import Playground, Playing
from stepwell.inspection.playground.settings import Asked
from stepwell.inspection.playground.sharing import MARK, from_file, from_link
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import read_bytes
from stepwell.program import parse

FIRST = """
func.func @forward(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %scale = stepwell.weight <"scale"> "constant"
    = dense<[0.5, 1.0, 1.5, 2.0]> : tensor<4xf32> : tensor<4xf32>
  %mul = aten.mul.Tensor(%x, %scale) : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %relu = aten.relu.default(%mul) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %add = aten.add.Tensor(%relu, %x) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %add : tensor<2x4xf32>
}
"""
"""The program that is used without a `MODEL`."""


def run(arguments: argparse.Namespace) -> Outcome:
    """Serve the page of the playground until Ctrl-C."""
    if not 0 <= arguments.port < 1 << 16:
        raise StepwellError(f"{arguments.port} is not a port", help="0 selects a free one")
    with waiting("opening " + (arguments.model or "a small program")[:60]):
        playground = playground_of(arguments)
    with Playing(playground, arguments.port) as playing:
        print(f"{playing.link}\nfor this machine alone; Ctrl-C ends it", flush=True)
        if arguments.open and not webbrowser.open(playing.link):
            print("no browser was found: open the link yourself", file=sys.stderr)
        try:
            playing.wait()
        except KeyboardInterrupt:
            print()
        return Outcome({"link": playing.link})


def playground_of(arguments: argparse.Namespace) -> Playground:
    """Return the playground that the command line selects."""
    spec: str | None = arguments.model
    asked = Asked(
        arguments.target, tuple(arguments.option), tuple((k, v) for k, v in arguments.edits)
    )
    if arguments.pipeline:
        raise StepwellError(
            "a playground has no --pipeline: it edits the pipeline of a target",
            help="use --target, with --after, --before, --replace, --without or --move",
        )
    if spec is None:
        return Playground(parse(FIRST), "first", asked)
    if MARK in spec or Path(spec).suffix == ".play":
        playground = Playground(parse(FIRST), "first")
        playground.take(from_link(spec) if MARK in spec else from_file(read_bytes(Path(spec))))
        return playground
    model = open_source(spec, trust=arguments.trust, **quantization_of(arguments))
    inputs = None if model.keywords else model.inputs
    return Playground(model.program, model.name, asked, inputs, spec)
