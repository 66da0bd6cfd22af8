"""`stepwell reduce repro.mlir`: shrink the program with which a pass fails."""

import argparse
from pathlib import Path

from stepwell.cli.terminal.outcome import Outcome
from stepwell.cli.terminal.progress import counting
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import read_bytes
from stepwell.validation.reducer.reduce import by_command, reduce
from stepwell.validation.reducer.reproducer import Header, Reproducer, load_for


def run(arguments: argparse.Namespace) -> Outcome:
    """Reduce the reproducer, write the small program and print it."""
    path: Path = arguments.file
    text = read_bytes(path).decode(errors="replace")
    header = Header.read(text)
    if header is not None:
        load_for(header, arguments.trust)
    if arguments.passes or (header is None and arguments.test):
        header = Header(arguments.passes or "", header.load if header else ())
    if header is None:
        raise StepwellError(
            f"{path} is not a reproducer of a failing pass",
            help="name the failing step by -p, or a command by --test",
        )
    whole = Reproducer.open(path, header)
    test = by_command(arguments.test, header) if arguments.test else None
    with counting(f"reducing {path.name}", "{left} ops left, {tried} programs tried") as tell:
        found = reduce(whole, test, lambda left, tried: tell(left=left, tried=tried))
    output: Path = arguments.output or path.with_suffix(".small.mlir")
    found.reproducer.save(output)
    text = found.reproducer.text().rstrip()
    print(text)
    print(f"\n{output}: {found.after} ops of {found.before}, {found.tried} programs tried")
    figures = {"before": found.before, "after": found.after, "tried": found.tried, "text": text}
    return Outcome(figures, [output])
