"""`stepwell demo`: lower and run a real model."""

from __future__ import annotations

import argparse

from stepwell.cli import demo
from stepwell.cli.terminal.outcome import Outcome


def run(arguments: argparse.Namespace) -> Outcome:
    """Lower DeiT-Tiny, run it, compare; exit with 1 if it differs from PyTorch."""
    figures = demo.demo(arguments.output, arguments.quick)
    return Outcome(figures, [arguments.output], 0 if figures["right"] else 1)
