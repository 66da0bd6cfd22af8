"""`stepwell accuracy MODEL -t TARGET --data FILE`: which stage and layer lose accuracy, and why."""

import argparse
from typing import Any

from stepwell.cli.commands import options_of
from stepwell.cli.terminal.outcome import Outcome
from stepwell.cli.terminal.progress import stepping
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import write_atomically
from stepwell.loaders.calibration import calibration_inputs
from stepwell.loaders.factories import made_by, named
from stepwell.loaders.models import open_model
from stepwell.lowering import lower
from stepwell.quantization.sensitivity.measure import accuracy


def run(arguments: argparse.Namespace) -> Outcome:
    """Measure accuracy, and print the summary and the tables."""
    if arguments.levels < 0:
        raise StepwellError(
            "--levels, a number of batches, must be at least 0", help="0 measures no level"
        )
    if arguments.save is not None and arguments.save.suffix != ".mlir":
        fact = f"--save writes IR text, and {arguments.save} does not end in .mlir"
        raise StepwellError(fact, help=f"name it {arguments.save.with_suffix('.mlir')}")
    data, fit = _batches(arguments.data), arguments.fit and _batches(arguments.fit)
    metric = arguments.metric and named(arguments.metric)
    opened = open_model(arguments.model, trust=arguments.trust)
    with stepping(f"measuring {opened.name}") as tell:
        found = accuracy(
            opened.module if opened.module is not None else opened.program,
            arguments.target,
            data,
            metric or None,
            quantize=arguments.quantize,
            cures=tuple(arguments.cures.split(",")) if arguments.cures else (),
            fit=fit or None,
            budget=arguments.budget and _budget(arguments.budget),
            levels=arguments.levels,
            resume=arguments.resume,
            progress=tell,
            **options_of(arguments),
        )
    print(found)
    if arguments.html:
        write_atomically(arguments.html, found.to_html().encode())
    if arguments.save:
        assert found.program is not None
        found.program.save(arguments.save)
        said = f"lower it with: stepwell lower {arguments.save} -t {found.target}"
        try:
            lower(found.program, arguments.target, **options_of(arguments))
        except StepwellError as error:
            said = f"{found.target} refuses it: {error.problems[0].fact}"
        print(f"{arguments.save}: {said}")
    written = (arguments.html, arguments.save)
    return Outcome(found.to_dict(), [path for path in written if path])


def _batches(spec: str) -> Any:
    """Return the batches of a callable, or the samples of a `.npz` as inputs without labels."""
    if spec.endswith(".npz"):
        return [(inputs, None) for inputs in calibration_inputs(spec)]
    return made_by(spec)


def _budget(text: str) -> tuple[float, str]:
    limit, _, what = text.partition(":")
    try:
        return float(limit), what or "bits"
    except ValueError:
        raise StepwellError(
            f"--budget {text}: {limit!r} is not a number", help="--budget 4.5:bits, 100000:bytes"
        ) from None
