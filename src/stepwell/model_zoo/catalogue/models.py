"""The catalogue: model factories by name, from the registries of installed libraries."""

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import StepwellError


@dataclass(frozen=True)
class Made:
    """A model ready to be exported.

    Attributes:
        module: the module in eval mode, with random weights, none constant.
        inputs: the positional inputs of `forward`.
        dynamic: symbolic sizes of the inputs, as for `torch.export`, if the entry specifies them;
            else only the batch can be symbolic.
        program: an `ExportedProgram` instead of a module, if a factory returns one.
        ranges: the smallest and largest integer of each input, in order, for targets with the
            option `ranges`; None for an input that is not an integer or may have any value.
    """

    module: torch.nn.Module | None
    inputs: tuple[Any, ...]
    dynamic: Any = None
    program: Any = None
    ranges: tuple[tuple[int, int] | None, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A model of the catalogue.

    Attributes:
        name: `timm/resnet18`, or `file.py:callable`.
        family: the library's name of the architecture.
        kind: the model's purpose: `image classification`, `operator`, …
        make: the function that creates the model, which takes seconds.
        size: the sort key, small models first.
        distributions: distributions whose versions the model depends on.
        module: the module to import before the model is created.
        file: the file on whose text, and on whose neighbors, the model depends; None for a
            library's model.
        target: the target for which the model is quantized; empty if it can be lowered to any
            target.
    """

    name: str
    family: str
    kind: str
    make: Callable[[], Made] = field(compare=False)
    size: float = 0.0
    distributions: tuple[str, ...] = ("torch",)
    module: str = "torch"
    file: Path | None = None
    target: str = ""

    @property
    def source(self) -> str:
        """Return the library's name, such as `timm`."""
        return self.name.split("/")[0] if python_file(self.name) is None else "file"


SOURCES: dict[str, tuple[str, ...]] = {
    "modules": (),
    "operators": (),
    "examples": (),
    "quantized": (),
    "torchvision": ("torchvision",),
    "timm": ("timm", "torchvision"),
    "transformers": ("transformers",),
    "diffusers": ("diffusers", "transformers"),
    "packages": (),
    "smp": ("segmentation_models_pytorch", "timm", "torchvision"),
}
"""Sources by name: a module of this package each, and the packages that it needs."""


def python_file(name: str) -> Path | None:
    """Return the file of a `file.py:callable`, or None for a name of the catalogue."""
    path, colon, _ = name.rpartition(":")
    return Path(path) if colon and path.endswith(".py") else None


def missing(source: str) -> tuple[str, ...]:
    """Return packages that a source needs and that are not installed."""
    return tuple(name for name in SOURCES[source] if find_spec(name) is None)


@cache
def entries_of(source: str) -> dict[str, Entry]:
    """Return the entries of a source, by name; empty if its library is not installed.

    Raises:
        StepwellError: the source is unknown.
    """
    if source not in SOURCES:
        raise StepwellError(
            f"the zoo has no source of models {source!r}",
            help="sources are " + ", ".join(f"{name}/*" for name in SOURCES),
        )
    if missing(source):
        return {}
    module = importlib.import_module(f"stepwell.model_zoo.catalogue.{source}")
    return {entry.name: entry for entry in module.entries()}


def find(name: str) -> Entry:
    """Return the catalogue entry of the model with a name.

    Raises:
        StepwellError: the model is unknown, or its library is not installed.
    """
    if (file := python_file(name)) is not None:
        return of_file(name, file)
    source = name.split("/")[0]
    held = entries_of(source)
    if name not in held:
        help = f"`stepwell sweep --list '{source}/*'` lists {len(held)} of them"
        if absent := missing(source):
            help = f"{', '.join(absent)} is not installed; the extra 'zoo' holds it"
        raise StepwellError(f"the zoo has no model {name!r}", help=help)
    return held[name]


def select(patterns: Sequence[str]) -> list[Entry]:
    """Return the entries that match the patterns, small models first.

    Args:
        patterns: `*`, `timm/*`, `transformers/bert*`, `!operators/*` (takes away), and
            `file.py:callable`.

    Raises:
        StepwellError: a pattern matches nothing.
    """
    chosen: dict[str, Entry] = {}
    for pattern in patterns:
        if python_file(pattern) is not None:
            chosen[pattern] = find(pattern)
            continue
        without, wanted = pattern.startswith("!"), pattern.removeprefix("!")
        source = wanted.split("/")[0]
        sources = [name for name in SOURCES if fnmatchcase(name, source)]
        if without:
            chosen = {name: one for name, one in chosen.items() if not fnmatchcase(name, wanted)}
            continue
        found = {
            name: entry
            for one in sources
            for name, entry in entries_of(one).items()
            if fnmatchcase(name, wanted) or wanted in ("*", one)
        }
        if not found:
            find(wanted)
        chosen |= found
    return sorted(chosen.values(), key=lambda entry: (entry.size, entry.name))


def of_file(name: str, file: Path) -> Entry:
    """Return the entry of a `file.py:callable`.

    Raises:
        StepwellError: the file does not exist.
    """
    if not file.exists():
        raise StepwellError(f"the file {file} does not exist")
    attribute = name.rpartition(":")[2]
    absolute = f"{os.path.abspath(file)}:{attribute}"

    def make() -> Made:
        from stepwell.loaders.factories import made_by, parts_of
        from stepwell.model_zoo.catalogue.wrapping import TensorFunction

        made = made_by(absolute)
        if isinstance(made, torch.export.ExportedProgram):
            return Made(None, (), program=made)
        module, inputs, keywords, dynamic = parts_of(attribute, made)
        if not keywords:
            return Made(module, inputs, dynamic)
        return Made(TensorFunction(module, tuple(keywords)), (*inputs, *keywords.values()))

    return Entry(f"{file}:{attribute}", file.stem, "file", make, file=file)
