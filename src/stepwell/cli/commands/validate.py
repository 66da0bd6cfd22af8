"""`stepwell validate ARTIFACT MODEL`: is an artifact right, and if not, which operator is wrong?"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepwell.cli.terminal.outcome import Outcome
from stepwell.cli.terminal.progress import waiting
from stepwell.cli.terminal.quantization import quantization_of
from stepwell.cli.terminal.sources import open_artifact, open_source
from stepwell.inspection.viewer import tell, to_html
from stepwell.inspection.viewer.side_by_side import with_beside
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import read_bytes, write_atomically
from stepwell.loaders.artifacts import read_artifact, read_at_any_size
from stepwell.loaders.models import Model
from stepwell.targets.target import RANGES
from stepwell.validation.artifacts import validate
from stepwell.validation.artifacts.given import read_inputs, read_recorded

if TYPE_CHECKING:
    from stepwell.ir.program import Program
    from stepwell.validation.artifacts import Validation


def run(arguments: argparse.Namespace) -> Outcome:
    """Compare an artifact with its source, print the verdict, and exit with 1 if it is wrong."""
    if arguments.script and arguments.script.suffix != ".py":
        raise StepwellError(f"{arguments.script} is no name of a script", help="--script fault.py")
    if arguments.quantize == "int8" and (made := open_artifact(str(arguments.artifact))):
        arguments.target = made.target.name  # int8 is the target's own.
    if arguments.model.endswith(".pte"):
        model = Model(arguments.model, read_at_any_size(read_bytes(Path(arguments.model))))
    else:
        model = open_source(arguments.model, trust=arguments.trust, **quantization_of(arguments))
    source = model.program
    given = None
    if arguments.inputs:
        first = next(iter(source.methods.values()))
        given = read_inputs(arguments.inputs, len(first.function_type.inputs.data))
    elif model.inputs and not model.keywords:
        given = model.inputs
    with waiting(f"validating {arguments.artifact}"):
        found = validate(
            arguments.artifact,
            source,
            given,
            external=arguments.external,
            recorded=read_recorded(arguments.recorded) if arguments.recorded else None,
            seed=arguments.seed,
            special=arguments.special_values,
            ranges=arguments.ranges and RANGES.read(arguments.ranges),
        )
    print(found)
    written: list[Path] = []
    if arguments.script and found.script is not None:
        written += found.script.save(arguments.script)
    elif arguments.script:
        print("no script: no operator of PyTorch alone shows a difference")
    if arguments.junit:
        write_atomically(arguments.junit, found.to_junit(arguments.artifact.name).encode())
        written.append(arguments.junit)
    if arguments.html:
        write_atomically(arguments.html, page(found, arguments, source).encode())
        written.append(arguments.html)
    for path in written:
        print(f"wrote {path}")
    facts = {"ok": found.ok, "sentence": found.sentence, **vars(found), "script": None}
    return Outcome(facts, written, 0 if found.ok else 1)


def page(found: Validation, arguments: argparse.Namespace, source: Program) -> str:
    """Return a page with both programs side by side, and the differences of operators on them."""
    story = tell(source, title=found.sentence)
    data, external = read_bytes(arguments.artifact), arguments.external
    is_pte = data[4:6] == b"ET"
    own = external and read_bytes(external)
    other = read_at_any_size(data, own) if is_pte else read_artifact(data)
    story = with_beside(story, other, arguments.artifact.name)
    overlay = {"results": {name: {"value": error} for name, error in found.errors.items()}}
    return to_html(replace(story, overlays={"difference of the artifact": overlay}))
