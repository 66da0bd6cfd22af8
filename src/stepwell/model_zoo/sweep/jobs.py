"""The jobs of a sweep; a job's name is a hash of everything that its row depends on."""

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

PACKAGE = Path(__file__).parents[2]
"""The folder of stepwell's modules."""
ENGINES = ("torch", "executorch", "torchao", "xdsl", "tosa-tools")
"""Distributions whose versions a row depends on, in addition to the model's."""
BESIDE = ("model_zoo", "cli", "inspection/viewer")
"""Folders that no row depends on, except for `MEASURES`."""
MEASURES = ("model_zoo/sweep/measuring.py", "model_zoo/sweep/accuracy.py")
"""Files in these folders that a row does depend on."""


@dataclass(frozen=True)
class Limits:
    """The limits of one job, beyond which it is ended.

    Attributes:
        seconds: the time limit of each stage (export, each target).
        memory: the bytes that the child process may use in addition to those at its start; Linux
            only.
    """

    seconds: float = 300.0
    memory: int = 8 << 30


@dataclass(frozen=True)
class Variant:
    """The preparation of a model before it is lowered.

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
    """A model in one preparation, lowered to one target; its result is one row.

    Attributes:
        model: `timm/resnet18`, or `file.py:callable`.
        target: as for `stepwell.lower`.
        options: as for `stepwell.lower`.
        variant: the preparation of the model.
        latency: measure the artifact's time, on a quiet worker.
        stock: lower and run with ExecuTorch's own flow too.
        tune: measure close alternatives of the cost model (`stepwell.tune`), on a quiet worker.
    """

    model: str
    target: str
    options: tuple[tuple[str, Any], ...] = ()
    variant: Variant = Variant()
    latency: bool = False
    stock: bool = False
    tune: bool = False

    def key(self, source: str) -> str:
        """Return the job's name, which is the key of its row.

        Args:
            source: the sources of the model (`source_of`).
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
    """The jobs of one model in one preparation, which is created and exported once for all."""

    jobs: tuple[Job, ...]
    keys: tuple[str, ...]
    entry: Entry = field(compare=False)

    @property
    def name(self) -> str:
        """Return a name of the task that depends only on its jobs."""
        return f"stepwell-{self.entry.name}-{digest(''.join(self.keys))[:16]}"

    @property
    def quiet(self) -> bool:
        """Whether the task measures time and needs a worker that runs nothing else."""
        return any(job.latency or job.tune for job in self.jobs)


def digest(*parts: str | bytes) -> str:
    """Return the SHA-256 of strings and bytes."""
    hashed = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hashed.update(len(data).to_bytes(8, "little"))
        hashed.update(data)
    return hashed.hexdigest()


@cache
def engine_hash() -> str:
    """Return a hash of stepwell's own source and the versions of its dependencies."""
    return source_hash(_counts)


@cache
def source_hash(counts: Callable[[str], bool]) -> str:
    """Return the relevant source files by path, and the versions of dependencies."""
    named = {path.relative_to(PACKAGE).as_posix(): path for path in _files(PACKAGE)}
    digests = [digest(name, path.read_bytes()) for name, path in named.items() if counts(name)]
    return digest(*digests, *(f"{name} {version_of(name)}" for name in ENGINES))


def _files(folder: Path) -> list[Path]:
    """Return the Python and JSON files of a package; links are followed."""
    paths: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            paths += _files(path)
        elif path.suffix in (".py", ".json", ".c"):
            paths.append(path)
    return paths


def _counts(path: str) -> bool:
    return path in MEASURES or not path.startswith(tuple(f"{folder}/" for folder in BESIDE))


@cache
def version_of(distribution: str) -> str:
    """Return the installed version of a distribution, or "none"."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "none"


@cache
def source_of(entry: Entry) -> str:
    """Return a model's sources: the text of its factory, and the version of its library."""
    file = python_file(entry.name) or entry.file
    if file is not None:
        return digest(entry.name, python_text(file.parent))
    own = [
        PACKAGE / "model_zoo" / "catalogue" / f"{name}.py"
        for name in (entry.source, "weights", "wrapping")
    ]
    versions = [f"{name} {version_of(name)}" for name in entry.distributions]
    return digest(entry.name, *(path.read_bytes() for path in own), *versions)


def python_text(folder: Path) -> str:
    """Return the text of the Python files of a folder."""
    return digest(*(path.read_bytes() for path in sorted(folder.glob("*.py"))))


def tasks_of(jobs: Sequence[Job], entries: dict[str, Entry]) -> list[Task]:
    """Group jobs by model and variant, small models first; tasks that measure time come last."""
    grouped: dict[tuple[str, Variant, bool], list[Job]] = {}
    for job in jobs:
        timed = job.latency or job.tune
        grouped.setdefault((job.model, job.variant, timed), []).append(job)
    tasks = [
        Task(tuple(held), tuple(job.key(source_of(entries[model])) for job in held), entries[model])
        for (model, _, _), held in grouped.items()
    ]
    return sorted(tasks, key=lambda task: (task.quiet, task.entry.size, task.entry.name))


def plain(task: Task, limits: Limits) -> dict[str, Any]:
    """Serialize a task (the jobs of one model) for a worker."""
    return {
        "model": task.entry.name,
        "module": task.entry.module,
        "jobs": [asdict(job) for job in task.jobs],
        "keys": list(task.keys),
        "seconds": limits.seconds,
        "memory": limits.memory,
    }


def jobs_of(given: Sequence[dict[str, Any]]) -> tuple[Job, ...]:
    """Return the jobs in a serialized list."""
    jobs: list[Job] = []
    for one in given:
        options = tuple((name, value) for name, value in one["options"])
        variant = Variant(**one["variant"])
        asked = {name: one[name] for name in ("latency", "stock", "tune")}
        job = Job(one["model"], one["target"], options, variant, **asked)
        jobs.append(job)
    return tuple(jobs)
