"""`stepwell opt FILE -p PASSES`: xDSL's driver, see `stepwell.integrations.xdsl.opt`."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout

from stepwell.cli.terminal.outcome import Outcome

NAME = "opt"
HELP = "run passes on a text: name{option=value},…; --list-passes lists them"


def run(arguments: Sequence[str]) -> Outcome:
    """Hand the arguments to the driver."""
    from stepwell.integrations.xdsl.opt import opt

    if not json_of(arguments):
        return Outcome(code=opt(arguments))
    with redirect_stdout(io.StringIO()) as held:
        code = opt(arguments)
    sys.stdout.write(text := held.getvalue())
    return Outcome({"text": text}, (), code)


def json_of(arguments: Sequence[str]) -> str | None:
    """What `--json` names; the arguments are read by the driver alone."""
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == "--json":
            return value if equals else next(iter(arguments[at + 1 :]), None)
    return None
