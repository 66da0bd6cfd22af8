"""`stepwell lower`: lower a program from any level to another level or to an artifact."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwell.backends.cortex_m.c.array import identifier_of
from stepwell.backends.executorch.running.inspection import write_etrecord
from stepwell.cli.commands import language_of, options_of
from stepwell.cli.terminal.outcome import Outcome
from stepwell.cli.terminal.progress import stepping, waiting
from stepwell.cli.terminal.quantization import quantization_of
from stepwell.cli.terminal.sources import open_source, random_values
from stepwell.cost_model.budgets import arenas_of
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import require_place, write_atomically
from stepwell.ir.program import Program
from stepwell.lowered import FORMATS, require_suffix
from stepwell.lowering import lower
from stepwell.targets.table import find_target

if TYPE_CHECKING:
    from stepwell.backends.cortex_m.c.standalone import Sources
    from stepwell.lowering import Lowered
    from stepwell.targets.target import Target


def run(arguments: argparse.Namespace) -> Outcome:
    """Lower a model, and write the requested files."""
    options = options_of(arguments)
    if arguments.etrecord:
        require_place(arguments.etrecord)
    if arguments.output and (arguments.to or arguments.stop_after):
        require_place(arguments.output)
    elif arguments.output:
        require_output(arguments.output, find_target(arguments.target), options)
    with waiting(f"lowering {arguments.model}"):
        model = open_source(
            arguments.model,
            trust=arguments.trust,
            **quantization_of(arguments),
            language=language_of(arguments),
            dynamic=_kinds(arguments.dynamic),
        )
        lowered = lower(
            model.program.raise_to("aten") if arguments.up else model.program,
            arguments.target,
            sizes=arguments.sizes,
            buckets=arguments.buckets,
            check=arguments.check,
            certify=arguments.certify is not None,
            start=arguments.start,
            stop=arguments.to or arguments.stop_after,
            **options,
        )
    for note in model.notes:
        print(note, file=sys.stderr)
    after = lowered.stopped_after
    if after is not None and arguments.output is None and arguments.emit_ir is None:
        text = lowered.program.text(locations=True)
        print(text)
        return Outcome({**figures_of(lowered), "text": text})
    print(lowered.report.text(arguments.verbose))
    if lowered.certificate is not None:
        lowered.certificate.save(arguments.certify)
        print(f"\n{arguments.certify}: {lowered.certificate}")
    if arguments.emit_ir:
        lowered.program.save(arguments.emit_ir)
    if arguments.output:
        sources = None
        if after is None:
            sources = save(lowered, arguments.output, arguments.model)
        elif arguments.output.suffix == ".mlir":
            lowered.program.save(arguments.output)
        else:
            fact = f"the lowering stops after {after!r} and writes IR, not an artifact"
            raise StepwellError(fact, help=f"name it {arguments.output.with_suffix('.mlir')}")
        if sources is not None:
            print(f"\n{arguments.output}/: {sources}")
        else:
            print(f"\n{arguments.output}: {arguments.output.stat().st_size:,} bytes")
        is_small = after is None and sources is None and lowered.program.level == "cmsis"
        if (arguments.buckets or is_small) and lowered.target.artifact == "pte":
            for name, planned in arenas_of(lowered.artifact).items():
                if name in lowered.program.methods:
                    print(f"{name}: {planned:,} bytes of activations")
    if arguments.etrecord:
        write_etrecord(lowered.to_etrecord(next(iter(model.program.methods))), arguments.etrecord)
    written = (arguments.certify, arguments.emit_ir, arguments.output, arguments.etrecord)
    return Outcome(figures_of(lowered), [path for path in written if path])


def require_output(output: Path, target: Target, options: Mapping[str, Any]) -> None:
    """Check where an artifact is written before the lowering, which may take long.

    Raises:
        StepwellError: the folder does not exist, or the suffix is that of another format.
    """
    if target.artifact == "c" or "project" in options:
        _require_folder(output)
        return
    require_place(output)
    if {".bpte": "pte", ".c": "c", ".h": "c"}.get(output.suffix) not in target.emitters:
        require_suffix(target, output)


def _require_folder(output: Path) -> None:
    if output.suffix in FORMATS:
        fact = f"project= and the targets c write a folder of C, not a {output.suffix} file"
        raise StepwellError(fact, help=f"name it {output.with_suffix('')}")


def _kinds(said: list[str]) -> dict[str, int | None]:
    """Return the kinds of dynamic sizes, with the maximum of each kind if it is stated."""
    kinds: dict[str, int | None] = {}
    for kind, _, most in (each.partition("=") for text in said for each in text.split(",")):
        if most and not most.isdecimal():
            raise StepwellError(f"--dynamic {kind}={most}: the maximum {most!r} is no number")
        kinds[kind] = int(most) if most else None
    return kinds


def figures_of(lowered: Lowered) -> dict[str, Any]:
    """Return the report as plain data, and the pass after which the lowering stopped."""
    return {**lowered.report.figures, "stopped_after": lowered.stopped_after}


def save(lowered: Lowered, output: Path, model: str = "") -> Sources | None:
    """Write the format that the file's suffix selects: the target's own, C source, or a bundle.

    A target that writes files writes a folder of C for `-O project=…`; its files are returned.
    """
    if lowered.target.artifact == "c" or "project" in lowered.options:
        _require_folder(output)
        sources = lowered.to_c("model", runtime=None)
        sources.save(output)
        return sources
    if output.suffix == ".bpte":
        write_atomically(output, lowered.to_bpte(_cases(lowered, model)))
        return None
    if output.suffix not in (".h", ".c"):
        with stepping(f"writing {output}") as tell:
            lowered.save(output, progress=tell)
        return None
    name = identifier_of(output.stem)
    write_atomically(output, lowered.to_c(name, header=output.suffix == ".h").encode())
    return None


def _cases(lowered: Lowered, model: str) -> Any:
    """Return test cases for a `.bpte`: those of a bundled source, else random inputs by method."""
    if model.endswith(".bpte"):
        return Path(model)
    source = lowered.source if isinstance(lowered.source, Program) else lowered.program
    return {name: [tuple(random_values(source, name, 0))] for name in source.methods}
