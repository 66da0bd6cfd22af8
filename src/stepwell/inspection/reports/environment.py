"""`stepwell env`: what is installed here, and which parts of stepwell work with it."""

from __future__ import annotations

import platform
from collections import defaultdict
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

import stepwell
from stepwell.dialects.xnnpack.costs import cpu_kind
from stepwell.ir.compat.torch import torch_private
from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.ir.compat.xdsl import xdsl_private
from stepwell.ir.diagnostics import StepwellError
from stepwell.translate import executorch_private

runtime = OnDemand("executorch.runtime")
EXTRAS = {
    "tosa": "targets tosa-*",
    "ethos-u": "targets ethos-u*",
    "vgf": "target vgf",
    "openvino": "targets openvino, xnnpack+openvino",
    "prove": "stepwell prove, certificates",
    "wasm": "builds of the targets c-wasm32*",
    "hf": "language models of transformers",
    "gguf": "language models in .gguf files",
    "peft": "adapters of language models",
    "sweep": "stepwell sweep",
    "notebook": "tables as dataframes",
    "completion": "completion of command lines",
}
"""Extra → what works with its packages alone."""


@dataclass(frozen=True)
class Package:
    """A requirement of stepwell, and what is installed.

    Attributes:
        name: the package.
        asked: the versions that stepwell asks for.
        installed: the installed version; None if there is none.
        fits: whether the installed version is one that stepwell asks for.
    """

    name: str
    asked: str
    installed: str | None
    fits: bool

    def __str__(self) -> str:
        if self.installed is None:
            return f"{self.name} (absent)"
        return f"{self.name} {self.installed}{'' if self.fits else f' ({self.asked} is asked for)'}"


@dataclass(frozen=True)
class Environment:
    """What is installed, and what works with it.

    Attributes:
        stepwell: stepwell's version.
        python: Python's version, and the system's name.
        cpu: the kind of this CPU, by the features that XNNPACK's kernels test.
        packages: what stepwell always needs.
        extras: by extra, the packages that it adds.
        backends: the backends in the installed ExecuTorch runtime.
        moved: private names of other packages that the installed versions do not have: place →
            what stepwell needs it for.
    """

    stepwell: str
    python: str
    cpu: str
    packages: list[Package]
    extras: dict[str, list[Package]]
    backends: list[str]
    moved: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def works(self) -> bool:
        """Whether stepwell works with what is installed, apart from extras."""
        return not self.moved and all(package.fits for package in self.packages)

    def __str__(self) -> str:
        lines = [f"stepwell {self.stepwell} on {self.python}, CPU {self.cpu}", ""]
        lines += [f"  {package}" for package in self.packages]
        lines.append(f"  ExecuTorch's runtime has {', '.join(self.backends) or 'no backend'}")
        lines += [f"  {place} has moved; needed for {why}" for place, why in self.moved.items()]
        width = max(map(len, EXTRAS.values()))
        lines.append("")
        for extra, serves in EXTRAS.items():
            lacks = [str(package) for package in self.extras[extra] if not package.fits]
            remedy = f"no: pip install 'stepwell[{extra}]' for {', '.join(lacks)}"
            lines.append(f"  {serves:{width}}  {remedy if lacks else 'yes'}")
        return "\n".join(lines)


def environment() -> Environment:
    """Compare what is installed with what stepwell's distribution asks for.

    Raises:
        StepwellError: stepwell itself is not installed, so that its requirements are unknown.
    """
    try:
        asked = [Requirement(text) for text in requires("stepwell") or ()]
    except PackageNotFoundError as error:
        fact = "stepwell runs from a folder and is not installed"
        raise StepwellError(fact, help="pip install -e . in its clone") from error
    extras: dict[str, list[Package]] = defaultdict(list)
    packages: list[Package] = []
    for requirement in asked:
        if requirement.marker is None:
            packages.append(_package(requirement))
            continue
        for extra in EXTRAS:
            if requirement.marker.evaluate({"extra": extra}):
                extras[extra].append(_package(requirement))
    return Environment(
        stepwell.__version__,
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        cpu_kind(),
        packages,
        {extra: extras[extra] for extra in EXTRAS},
        _backends(),
        _moved(),
    )


def _package(requirement: Requirement) -> Package:
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        return Package(requirement.name, str(requirement.specifier), None, False)
    fits = requirement.specifier.contains(installed, prereleases=True)
    return Package(requirement.name, str(requirement.specifier), installed, fits)


def _backends() -> list[str]:
    try:
        return list(runtime.Runtime.get().backend_registry.registered_backend_names)
    except (ImportError, OSError):
        return []


def _moved() -> dict[str, str]:
    moved: dict[str, str] = {}
    tables = (torch_private.NAMES.values(), executorch_private.NAMES.values())
    for name in (*tables[0], *tables[1], *xdsl_private.EXTENDED):
        try:
            name.found()
        except StepwellError:
            moved[name.place] = name.serves
    return moved
