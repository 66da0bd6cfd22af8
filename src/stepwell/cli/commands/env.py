"""`stepwell env`: what is installed, and which parts of stepwell work with it."""

import argparse

from stepwell.cli.terminal.outcome import Outcome
from stepwell.inspection.reports.environment import environment


def run(arguments: argparse.Namespace) -> Outcome:
    """Print the report; exit with 1 if stepwell does not work with what is installed."""
    found = environment()
    print(found)
    return Outcome(found, (), 0 if found.works else 1)
