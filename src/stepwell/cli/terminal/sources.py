"""Open what a command takes (a model, a saved program or an artifact) as a program."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from xdsl.dialects.builtin import StringAttr

from stepwell.backends.executorch.writing.bundled import unbundled
from stepwell.backends.inventory import outside_and_delegates
from stepwell.dialects.delegate import NamedDelegateOp
from stepwell.ir.diagnostics import StepwellError, UnsupportedError
from stepwell.ir.platform.files import read_bytes
from stepwell.ir.program import Program
from stepwell.ir.types import has_floats
from stepwell.loaders.models import Model, open_model
from stepwell.plugins.plugins import registry
from stepwell.targets.table import find_target
from stepwell.targets.target import Target


@dataclass(frozen=True)
class Artifact:
    """A file that a target emitted.

    Attributes:
        name: the file's name without its suffix.
        data: the bytes of the file.
        program: the program in the file.
        target: the target whose engine runs it.
        notes: choices that reading it required, a sentence each.
    """

    name: str
    data: bytes
    program: Program
    target: Target
    notes: tuple[str, ...] = ()


def open_source(
    spec: str,
    *,
    trust: bool = False,
    largest: bool = False,
    quantize: str | None = None,
    language: Mapping[str, Any] | None = None,
    dynamic: Mapping[str, int | None] | None = None,
    data: Sequence[tuple[Any, ...]] | None = None,
) -> Model:
    """Open a model (`open_model`), or the program in an artifact (`open_artifact`).

    Raises:
        StepwellError: the file is missing or cannot be read.
    """
    artifact = open_artifact(spec, largest=largest)
    if artifact is None:
        return open_model(
            spec, trust=trust, quantize=quantize, language=language, dynamic=dynamic, data=data
        )
    return Model(artifact.name, artifact.program, notes=artifact.notes)


def open_artifact(spec: str, *, largest: bool = False) -> Artifact | None:
    """Read the artifact in a file of any producer; return None if it is not an artifact.

    Args:
        spec: a `.pte`, a `.bpte`, a `.tosa`, a `.vgf`, or a file of a plug-in's target that has
            a reader.
        largest: read a `.pte` at the largest sizes it declares, also if it can be read at any.

    Raises:
        StepwellError: the file is missing or cannot be read.
    """
    path = Path(spec)
    is_bundle = path.suffix == ".bpte"
    reader = _reader_of(".pte" if is_bundle else path.suffix, largest)
    if reader is None:
        return None
    data = unbundled(read_bytes(path)) if is_bundle else read_bytes(path)
    program, target, notes = reader(data)
    return Artifact(path.stem, data, program, target, notes)


Read = tuple[Program, Target, tuple[str, ...]]
"""The program in a file, the target whose engine runs it, and notes, a sentence each."""


def _reader_of(suffix: str, largest: bool) -> Callable[[bytes], Read] | None:
    if suffix in (".pte", ".tosa", ".vgf"):
        return lambda data: _read(suffix, data, largest)
    if len(suffix) < 2 or suffix == ".pt2" or ":" in suffix:
        return None  # Asking each target imports it.
    for name in registry().targets:
        target = find_target(name)
        if target.reader is not None and suffix == f".{target.artifact}":
            return lambda data, read=target.reader, by=target: (read(data), by, ())
    return None


def _read(suffix: str, data: bytes, largest: bool) -> Read:
    from stepwell.loaders import artifacts

    if suffix == ".tosa":
        program = artifacts.read_tosa(data)
        is_float = any(has_floats(r.type) for op in program.module.walk() for r in op.results)
        return program, find_target("tosa-1.0+fp" if is_float else "tosa-1.0+int"), ()
    if suffix == ".vgf":
        return artifacts.read_vgf(data), find_target("vgf"), ()
    try:
        program = artifacts.read_pte(data, largest=largest)
        return program, _target_of(program), ()
    except UnsupportedError as error:
        with suppress(StepwellError):
            program = artifacts.read_pte(data, largest=True)
            return program, _target_of(program), ("read at the largest sizes that it declares",)
        raise error


def _target_of(program: Program) -> Target:
    """Return the target whose engine runs the program of a `.pte`, by its delegates."""
    if program.level == "cmsis":
        core = cast("StringAttr | None", program.module.attributes.get("cmsis.target"))
        return find_target(core.data if core else "cortex-m55")
    for op in outside_and_delegates(program):
        said = op.properties.get("accelerator") or op.properties.get("backend")
        name = said.data if isinstance(said, StringAttr) else ""
        if "accelerator" in op.properties:
            return find_target(f"{name}+cpu" if name.startswith("tosa") else name)
        if name:
            return replace(find_target("xnnpack"), name=name)
        if isinstance(op, NamedDelegateOp):
            return find_target(op.name.partition(".")[0])
    return find_target("xnnpack")


def random_values(program: Program, method: str, seed: int) -> Sequence[Any]:
    """Return inputs of a method: normal floats and small integers, from a seed."""
    from stepwell.validation.samples import make_samples

    samples = make_samples(program.method(method), None, seed)
    return next(sample for sample in samples if sample.label == "random").inputs
