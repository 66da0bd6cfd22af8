"""Open what a command takes (a model, a saved program or an artifact) as a program."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepwell.backends.executorch.writing.bundled import unbundled
from stepwell.ir.platform.files import read_bytes
from stepwell.ir.program import Program
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
    """

    name: str
    data: bytes
    program: Program
    target: Target


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
    return Model(artifact.name, artifact.program)


def open_artifact(spec: str, *, largest: bool = False) -> Artifact | None:
    """Read the artifact in a file of any producer; return None if it is not an artifact.

    Args:
        spec: a `.pte`, a `.bpte`, a `.tosa`, a `.vgf`, or a file of a plug-in's target that has
            a reader.
        largest: read a `.pte` at the largest sizes it declares.

    Raises:
        StepwellError: the file is missing or cannot be read.
    """
    path = Path(spec)
    is_bundle = path.suffix == ".bpte"
    reader = _reader_of(".pte" if is_bundle else path.suffix, largest)
    if reader is None:
        return None
    data = unbundled(read_bytes(path)) if is_bundle else read_bytes(path)
    program, target = reader(data)
    return Artifact(path.stem, data, program, target)


def _reader_of(suffix: str, largest: bool) -> Callable[[bytes], tuple[Program, Target]] | None:
    if suffix in (".pte", ".tosa", ".vgf"):
        return lambda data: _read(suffix, data, largest)
    for name in registry().targets if len(suffix) > 1 else ():
        target = find_target(name)
        if target.reader is not None and suffix == f".{target.artifact}":
            return lambda data, read=target.reader, by=target: (read(data), by)
    return None


def _read(suffix: str, data: bytes, largest: bool) -> tuple[Program, Target]:
    from stepwell.loaders import artifacts

    if suffix == ".tosa":
        return artifacts.read_tosa(data), find_target("tosa-1.0+fp")
    if suffix == ".vgf":
        return artifacts.read_vgf(data), find_target("vgf")
    program = artifacts.read_pte(data, largest=largest)
    return program, find_target("cortex-m55" if program.level == "cmsis" else "xnnpack")


def random_values(program: Program, method: str, seed: int) -> Sequence[Any]:
    """Return inputs of a method: normal floats and small integers, from a seed."""
    from stepwell.validation.samples import make_samples

    samples = make_samples(program.method(method), None, seed)
    return next(sample for sample in samples if sample.label == "random").inputs
