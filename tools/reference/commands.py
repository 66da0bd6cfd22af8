"""The command line, from its own help."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import Any

from reference.text import fenced


def pages() -> dict[str, str]:
    """Return one page with the help of every command."""
    os.environ["COLUMNS"] = "100"
    from stepwell.cli import main

    parser: Any = main._parser()
    parts = ["# Command line\n", fenced(parser.format_help(), "text")]
    (commands,) = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for name, command in commands.choices.items():
        parts += [f"## stepwell {name}\n", fenced(_help(name, command), "text")]
    return {"reference/cli.md": "\n".join(parts)}


def _help(name: str, command: argparse.ArgumentParser) -> str:
    """`opt` is xDSL's driver, which has a parser of its own."""
    if name != "opt":
        return command.format_help()
    told = [sys.executable, "-m", "stepwell", name, "--help"]
    return subprocess.run(told, capture_output=True, text=True, check=True).stdout
