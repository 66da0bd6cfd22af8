"""`stepwell verify-certificate FILE [MODEL]`: is what a certificate says so?"""

from __future__ import annotations

import argparse
from pathlib import Path

from stepwell.ir.diagnostics import StepwellError
from stepwell.terminal.outcome import Outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("certificate", type=Path, metavar="FILE", help="from `lower --certify`")
    parser.add_argument(
        "program",
        nargs="?",
        type=Path,
        metavar="PROGRAM",
        help="the .mlir of `lower --emit-ir` that it must speak of, its weights beside it",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the variables (1)")


def run(arguments: argparse.Namespace) -> Outcome:
    """Check it again; 1 if it is refused."""
    from stepwell.certifying.certificate import Certificate
    from stepwell.certifying.verifying import verify_certificate
    from stepwell.dialects import make_known
    from stepwell.program import Program

    make_known()
    try:
        text = arguments.certificate.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise StepwellError(f"{arguments.certificate} cannot be read: {error}") from error
    program = None if arguments.program is None else Program.load(arguments.program)
    certificate = verify_certificate(Certificate.from_json(text), program, arguments.seed)
    for fault in certificate.faults:
        print(fault)
    print(f"{arguments.certificate}: {certificate}")
    figures = {
        "ok": certificate.ok,
        "faults": [str(fault) for fault in certificate.faults],
        "text": str(certificate),
    }
    return Outcome(figures, (), 0 if certificate.ok else 1)
