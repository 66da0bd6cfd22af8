"""`stepwell explain MODEL -t TARGET`: where did each op go, and why did some stay?"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from stepwell.commands import add_model, add_target, options_of
from stepwell.commands.progress import waiting
from stepwell.ir.files import write_atomically


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_model(parser)
    add_target(parser)
    parser.add_argument("--outside", action="store_true", help="only what is left to kernels")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Lower and print the fates of the model's ops, the costliest first."""
    from stepwell.commands.sources import open_artefact
    from stepwell.explaining import explain, explain_artefact
    from stepwell.models import open_model

    held = open_artefact(arguments.model)
    if held is not None:
        explanation = explain_artefact(held.program, Path(arguments.model).name)
    else:
        options = options_of(arguments)
        with waiting(f"lowering {arguments.model}"):
            model = open_model(arguments.model, trust=arguments.trust, quantise=arguments.quantise)
            explanation = explain(model.program, arguments.target, **options)
    if arguments.json:
        write_atomically(arguments.json, explanation.to_json().encode())
    if arguments.outside:
        explanation = replace(explanation, fates=explanation.outside)
    print(explanation)
    return 0
