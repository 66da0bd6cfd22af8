"""`stepwell verify-certificate FILE [PROGRAM] [--source MODEL]`: verify a certificate."""

import argparse

from stepwell.cli.terminal.outcome import Outcome
from stepwell.cli.terminal.sources import open_source
from stepwell.dialects import make_known
from stepwell.ir.diagnostics import StepwellError
from stepwell.program import Program, from_exported_program, programs_of
from stepwell.validation.certificates.audit import verify_certificate
from stepwell.validation.certificates.certificate import Certificate


def run(arguments: argparse.Namespace) -> Outcome:
    """Verify the certificate; return 1 if it is rejected."""
    make_known()
    try:
        text = arguments.certificate.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StepwellError(f"{arguments.certificate} cannot be read: {error}") from error
    made = Certificate.from_json(text)
    program = None if arguments.program is None else Program.load(arguments.program)
    source = None if arguments.source is None else _opened(arguments.source)
    found = verify_certificate(made, program, arguments.seed, source=source)
    for fault in found.faults:
        print(fault)
    print(f"{arguments.certificate}: {found}")
    if source is None and found.ok:
        print("The first program is the certificate's own text; --source MODEL compares it.")
    figures = {
        "ok": found.ok,
        "proved": found.is_proved,
        "trusted": dict(found.trusted),
        "faults": list(found.faults),
        "text": str(found),
    }
    return Outcome(figures, (), 0 if found.ok else 1)


def _opened(model: str) -> Program:
    """Open the program of a `MODEL` argument, as `stepwell lower` does."""
    found = programs_of(open_source(model).program)
    return found if isinstance(found, Program) else from_exported_program(found)
