"""`stepwell check MODEL -t TARGET`: is every pass of the lowering within its error bound?"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from stepwell.cli.commands import options_of
from stepwell.cli.terminal.outcome import Outcome
from stepwell.cli.terminal.progress import stepping
from stepwell.cli.terminal.quantization import quantization_of
from stepwell.cli.terminal.sources import open_artifact
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import write_atomically
from stepwell.loaders.models import open_model
from stepwell.lowering import lower
from stepwell.validation.certificates.certificate import PROVED
from stepwell.validation.check import check, check_file

if TYPE_CHECKING:
    from stepwell.validation.result import CheckResult


def run(arguments: argparse.Namespace) -> Outcome:
    """Check each pass of a lowering, print a table, and exit with 1 if a result differs."""
    artifact = open_artifact(arguments.model)
    if artifact is not None:
        result = check_file(artifact.target, artifact.data, artifact.program, seed=arguments.seed)
        result = replace(result, model=artifact.name)
        for note in artifact.notes:
            print(note, file=sys.stderr)
    else:
        result = _of_model(arguments)
    print(result.text(arguments.verbose))
    proved = _certified(arguments) if arguments.prove and artifact is None else None
    if proved is not None:
        print(proved)
    if arguments.html:
        write_atomically(arguments.html, result.to_html().encode())
    files = [arguments.html] if arguments.html else []
    found = {"ok": result.ok, **vars(result), "proved": proved}
    return Outcome(found, files, 0 if result.ok else 1)


def _certified(arguments: argparse.Namespace) -> str:
    """Lower with a certificate; describe the evidence for its rewrites, and name unproved ones."""
    model = open_model(arguments.model, trust=arguments.trust, **quantization_of(arguments))
    try:
        found = lower(model.program, arguments.target, certify=True, **options_of(arguments))
    except StepwellError as error:
        return error.problems[0].fact
    assert found.certificate is not None
    left = Counter(e.rewrite for e in found.certificate.entries if e.by not in PROVED)
    lines = [str(found.certificate)]
    lines += [f"  not proved: {name} ({count})" for name, count in left.most_common()]
    return "\n".join(lines)


def _of_model(arguments: argparse.Namespace) -> CheckResult:
    options = options_of(arguments)
    model = open_model(arguments.model, trust=arguments.trust, **quantization_of(arguments))
    with stepping(f"checking {model.name}") as tell:
        result = check(
            model.program,
            arguments.target,
            inputs=None if model.keywords else model.inputs,  # The program has both as samples.
            reference=model.module,
            seed=arguments.seed,
            artifact=not arguments.no_artifact,
            engine=arguments.engine,
            progress=tell,
            **options,
        )
    return replace(result, model=model.name)
