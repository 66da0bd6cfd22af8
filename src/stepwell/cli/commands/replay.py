"""`stepwell replay BASE..HEAD`: compare the lowering of a fixed set of programs by two commits."""

import argparse

from stepwell.cli.terminal.outcome import Outcome
from stepwell.cli.terminal.progress import stepping
from stepwell.model_zoo.regression.replay import MODELS, replay
from stepwell.plugins.plugins import handed_on


def run(arguments: argparse.Namespace) -> Outcome:
    """Lower the same programs with both commits, and print a table of what differs."""
    with handed_on(arguments.load), stepping("replay") as tell:
        found = replay(
            arguments.span,
            arguments.model or MODELS,
            arguments.target,
            cache=arguments.cache,
            workers=arguments.workers,
            tell=tell,
        )
    print(found, end="")
    changed = [f"{pair.name} {pair.target}" for pair in found.changed]
    result = {**vars(found), "changed": changed}
    return Outcome(result, (), 1 if arguments.exit_code and changed else 0)
