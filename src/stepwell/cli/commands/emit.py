"""`stepwell emit`: finish the lowering of a program at any level, and write its artifact."""

import argparse

from stepwell.cli.commands import options_of
from stepwell.cli.commands.lower import figures_of, require_output, save
from stepwell.cli.terminal.outcome import Outcome
from stepwell.cli.terminal.progress import waiting
from stepwell.cli.terminal.quantization import quantization_of
from stepwell.cli.terminal.sources import open_source
from stepwell.lowering import lower
from stepwell.targets.table import find_target


def run(arguments: argparse.Namespace) -> Outcome:
    """Run the remaining passes on the program, and write the artifact."""
    options = options_of(arguments)
    require_output(arguments.output, find_target(arguments.target), options)
    with waiting(f"emitting {arguments.model}"):
        model = open_source(arguments.model, trust=arguments.trust, **quantization_of(arguments))
        lowered = lower(model.program, arguments.target, start=arguments.start, **options)
        sources = save(lowered, arguments.output, arguments.model)
    size = f"{arguments.output.stat().st_size:,} bytes"
    print(f"{arguments.output}: {size}" if sources is None else f"{arguments.output}/: {sources}")
    return Outcome(figures_of(lowered), [arguments.output])
