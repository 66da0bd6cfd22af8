"""`stepwell run FILE`: run an artifact on its engine, or a text in the interpreter."""

import argparse
from pathlib import Path
from typing import Any

from stepwell.cli.terminal.outcome import Outcome
from stepwell.cli.terminal.sources import open_artifact, random_values
from stepwell.inspection.reports.profiling import profile
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import read_bytes
from stepwell.loaders.artifacts import random_inputs, run_pte
from stepwell.loaders.models import open_model


def run(arguments: argparse.Namespace) -> Outcome:
    """Run on random inputs and print the outputs, or a profile."""
    path = Path(arguments.artifact)
    if path.suffix == ".pte":
        return _run_pte(path, arguments)
    if arguments.profile:
        raise StepwellError("--profile needs a .pte", help="ExecuTorch's runtime has the profiler")
    artifact = open_artifact(arguments.artifact)
    program = artifact.program if artifact else open_model(arguments.artifact).program
    inputs = random_values(program, arguments.method, arguments.seed)
    if artifact is None:
        return _shown(program.run(*inputs, method=arguments.method))
    return _shown(artifact.target.run(artifact.data, inputs, arguments.method))


def _run_pte(path: Path, arguments: argparse.Namespace) -> Outcome:
    data = read_bytes(path)
    inputs = random_inputs(data, arguments.method, arguments.seed)
    if not arguments.profile:
        return _shown(run_pte(data, inputs, arguments.method, cpu=arguments.cpu))
    found = profile(
        data, inputs, arguments.method, record=arguments.etrecord, repeat=arguments.repeat
    )
    print(found)
    return Outcome(found)


def _shown(outputs: tuple[object, ...]) -> Outcome:
    for index, output in enumerate(outputs):
        print(f"output {index}: {output}")
    return Outcome({"outputs": [_values(output) for output in outputs]})


def _values(output: Any) -> Any:
    """Return a tensor as dtype, shape and values; any other value unchanged."""
    if not hasattr(output, "tolist"):
        return output
    dtype = str(output.dtype).removeprefix("torch.")
    return {"dtype": dtype, "shape": list(output.shape), "values": output.tolist()}
