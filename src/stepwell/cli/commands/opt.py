"""`stepwell opt FILE -p PASSES`: xDSL's driver, see `stepwell.integrations.xdsl.opt`."""

import argparse
import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout

from stepwell.cli.arguments.common import add_load
from stepwell.cli.terminal.outcome import Outcome, add_json, json_of
from stepwell.integrations.xdsl.opt import opt


def run(arguments: Sequence[str]) -> Outcome:
    """Run xDSL's driver with the arguments."""
    if not json_of(arguments):
        return Outcome(code=opt(arguments, _add_arguments))
    with redirect_stdout(io.StringIO()) as held:
        code = opt(arguments, _add_arguments)
    sys.stdout.write(text := held.getvalue())
    return Outcome({"text": text}, (), code)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that all commands share."""
    add_load(parser)
    add_json(parser)
