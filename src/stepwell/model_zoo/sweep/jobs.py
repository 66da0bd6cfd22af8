"""What a sweep is asked for: jobs, named by everything that their rows hang on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from stepwell.model_zoo.catalogue.models import Entry, python_file
from stepwell.plugins.plugins import registry

PACKAGE = Path(__file__).parent.parent
"""Where stepwell's modules stand."""
ENGINES = ("torch", "executorch", "torchao", "xdsl", "tosa-tools")
"""Distributions whose versions a row hangs on, besides those that the model comes from."""
BESIDE = ("zoo", "sweeping", "replaying", "commands", "showing")
"""Folders of the front door that no row hangs on, but for `MEASURES`."""
MEASURES = ("sweeping/measuring.py", "sweeping/accuracy.py", "staging/ports.py")
"""Files beside which a row does hang on."""


@dataclass(frozen=True)
class Limits:
    """What one job may take before it is ended.

    Attributes:
        seconds: of each of its stages (export, each target).
        memory: bytes beyond what a child holds before it starts; Linux only.
    """

    seconds: float = 300.0
    memory: int = 8 << 30


@dataclass(frozen=True)
class Variant:
    """What is done to a model before it is lowered.

    Attributes:
        quantize: a name of `stepwell.quantization.quantizers`, or None.
        dtype: floats are cast to this type (`float16`, `bfloat16`), or None.
        symbolic: export with symbolic sizes: the entry's own, else the batch.
        payload: linear layers in this MX payload, or None.
    """

    quantize: str | None = None
    dtype: str | None = None
    symbolic: bool = False
    payload: str | None = None

    def __str__(self) -> str:
        named = (self.quantize, self.dtype, "symbolic" if self.symbolic else None, self.payload)
        return " ".join(part for part in named if part) or "as it is"


@dataclass(frozen=True)
class Job:
    """One model, prepared one way, lowered to one target: one row.

    Attributes:
        model: `timm/resnet18`, or `file.py:callable`.
        target: as for `stepwell.lower`.
        options: as for `stepwell.lower`.
        variant: what is done to the model first.
        latency: measure the artifact's time, on a quiet worker.
        stock: lower and run with ExecuTorch's own flow too.
        tune: measure what costs call close (`stepwell.tune`), on a quiet worker.
    """

    model: str
    target: str
    options: tuple[tuple[str, Any], ...] = ()
    variant: Variant = Variant()
    latency: bool = False
    stock: bool = False
    tune: bool = False

    def key(self, source: str) -> str:
        """The name of the row.

        Args:
            source: what the model is made from (`source_of`).
        """
        said = {
            **asdict(self),
            "source": source,
            "engine": engine_hash(),
            "plugins": registry().identity(),
        }
        return digest(json.dumps(said, sort_keys=True, default=str))


@dataclass(frozen=True)
class Task:
    """Jobs of one model prepared one way: it is made and exported once for all of them."""

    jobs: tuple[Job, ...]
    keys: tuple[str, ...]
    entry: Entry = field(compare=False)

    @property
    def name(self) -> str:
        """The same for the same jobs."""
        return f"stepwell-{self.entry.name}-{digest(''.join(self.keys))[:16]}"

    @property
    def quiet(self) -> bool:
        """Whether time is measured."""
        return any(job.latency or job.tune for job in self.jobs)


def digest(*parts: str | bytes) -> str:
    """SHA-256 over texts and bytes."""
    hashed = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hashed.update(len(data).to_bytes(8, "little"))
        hashed.update(data)
    return hashed.hexdigest()


@cache
def engine_hash() -> str:
    """Stepwell's own source and the versions of what it stands on."""
    return source_hash(_counts)


@cache
def source_hash(counts: Callable[[str], bool]) -> str:
    """Those files of stepwell's source that count, by their paths, and the versions below it."""
    named = {path.relative_to(PACKAGE).as_posix(): path for path in _files(PACKAGE)}
    digests = [digest(name, path.read_bytes()) for name, path in named.items() if counts(name)]
    return digest(*digests, *(f"{name} {version_of(name)}" for name in ENGINES))


def _files(folder: Path) -> list[Path]:
    """Python and JSON files of a package, those behind its links included."""
    paths: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            paths += _files(path)
        elif path.suffix in (".py", ".json", ".c"):
            paths.append(path)
    return paths


def _counts(path: str) -> bool:
    return path in MEASURES or path.split("/")[0] not in BESIDE


@cache
def version_of(distribution: str) -> str:
    """The version that is installed, or "none"."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "none"


@cache
def source_of(entry: Entry) -> str:
    """What a model is made from: the text of its factory, and the version of its library."""
    file = python_file(entry.name) or entry.file
    if file is not None:
        return digest(entry.name, python_text(file.parent))
    own = [PACKAGE / "zoo" / f"{name}.py" for name in (entry.source, "weights", "wrapping")]
    versions = [f"{name} {version_of(name)}" for name in entry.distributions]
    return digest(entry.name, *(path.read_bytes() for path in own), *versions)


def python_text(folder: Path) -> str:
    """The text of the Python files of a folder."""
    return digest(*(path.read_bytes() for path in sorted(folder.glob("*.py"))))


def tasks_of(jobs: Sequence[Job], entries: dict[str, Entry]) -> list[Task]:
    """Jobs by model and variant, small models first; time is measured in tasks of its own, last."""
    grouped: dict[tuple[str, Variant, bool], list[Job]] = {}
    for job in jobs:
        timed = job.latency or job.tune
        grouped.setdefault((job.model, job.variant, timed), []).append(job)
    tasks = [
        Task(tuple(held), tuple(job.key(source_of(entries[model])) for job in held), entries[model])
        for (model, _, _), held in grouped.items()
    ]
    return sorted(tasks, key=lambda task: (task.quiet, task.entry.size, task.entry.name))
