"""`stepwell run FILE`: an artefact on its engine, or a text in the interpreter."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.files import read_bytes, write_atomically


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "artefact",
        help=".pte, anybody's, .tosa or a plug-in's on its engine; .mlir in the interpreter",
    )
    parser.add_argument("--method", default="forward", help="which method to call (forward)")
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs (0)")
    parser.add_argument("--cpu", help="an Arm64 core to run a .pte on: cortex-a76, … (make arm64)")
    parser.add_argument("--profile", action="store_true", help="time each op of a .pte instead")
    parser.add_argument(
        "--etrecord", type=Path, metavar="FILE", help="of the lowering: names and source lines"
    )
    parser.add_argument("--repeat", type=int, default=20, help="calls of --profile (20)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write every event of --profile as JSON"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run on random inputs and print the outputs, or a profile."""
    path = Path(arguments.artefact)
    if path.suffix == ".pte":
        return _run_pte(path, arguments)
    if arguments.profile:
        raise StepwellError("--profile times a .pte", help="ExecuTorch's runtime has the profiler")
    from stepwell.commands.sources import open_artefact, random_values
    from stepwell.models import open_model

    held = open_artefact(arguments.artefact)
    program = held.program if held else open_model(arguments.artefact).program
    inputs = random_values(program, arguments.method, arguments.seed)
    if held is None:
        _show(program.run(*inputs, method=arguments.method))
    else:
        _show(held.target.run(held.data, inputs, arguments.method))
    return 0


def _run_pte(path: Path, arguments: argparse.Namespace) -> int:
    from stepwell.artefacts import random_inputs, run_pte

    data = read_bytes(path)
    inputs = random_inputs(data, arguments.method, arguments.seed)
    if not arguments.profile:
        _show(run_pte(data, inputs, arguments.method, cpu=arguments.cpu))
        return 0
    from stepwell.profiling import profile

    found = profile(
        data, inputs, arguments.method, record=arguments.etrecord, repeat=arguments.repeat
    )
    print(found)
    if arguments.json:
        write_atomically(arguments.json, found.to_json().encode())
    return 0


def _show(outputs: tuple[object, ...]) -> None:
    for index, output in enumerate(outputs):
        print(f"output {index}: {output}")
