"""`stepwell plugins`: the loaded plug-ins, their registrations, and failures."""

import argparse

from stepwell.cli.terminal.outcome import Outcome
from stepwell.plugins.plugins import registry


def run(arguments: argparse.Namespace) -> Outcome:
    """Print every plug-in; exit with 1 if one failed."""
    plugins = list(registry().plugins.values())
    print("\n".join(map(str, plugins)) or "no plug-in is installed or loaded (docs/plugins.md)")
    names = "name", "origin", "brings", "failure"
    held = [{name: getattr(plugin, name) for name in names} for plugin in plugins]
    return Outcome({"plugins": held}, (), 1 if any(plugin.failure for plugin in plugins) else 0)
