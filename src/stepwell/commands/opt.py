"""`stepwell opt FILE -p PASSES`: the arguments are those of xDSL's driver, see `stepwell.opt`."""

from __future__ import annotations

from collections.abc import Sequence

NAME = "opt"
HELP = "run passes on a text: name{option=value},…; --list-passes lists them"


def run(arguments: Sequence[str]) -> int:
    """Hand the arguments to the driver."""
    from stepwell.opt import opt

    return opt(arguments)
