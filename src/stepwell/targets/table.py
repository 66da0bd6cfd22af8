"""Targets by name: each has a pipeline, the emitters of its artifacts, and the engine that runs
them.

The module of a target is imported when the target is named. Lowering to XNNPACK thus needs neither
the operators of Arm's targets nor the packages that they require.
"""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.renderers import Shown
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.plugins.plugins import registry
from stepwell.plugins.registry import unknown
from stepwell.targets.target import Target

__all__ = ["PIPELINES", "Target", "find_target", "known_targets"]

_HOMES = {
    "xnnpack": "stepwell.targets.xnnpack",
    **dict.fromkeys(("cortex-m", "c-", "ethos-u", "tosa-", "vgf"), "stepwell.targets.arm"),
}
"""Name prefix → the module of these targets: `find(name)`, and `OWN`, the listed pipelines."""


def _home(name: str) -> Any:
    """Import the module of a target; None if the name is not stepwell's own."""
    found = (home for prefix, home in _HOMES.items() if f"{name}-".startswith(prefix))
    return importlib.import_module(home) if (home := next(found, None)) else None


def _own() -> dict[str, Pipeline]:
    """Return all pipelines that are stepwell's own and listed by name."""
    homes = map(importlib.import_module, dict.fromkeys(_HOMES.values()))
    return {name: pipeline for home in homes for name, pipeline in home.OWN.items()}


class Pipelines(Shown, Mapping[str, Pipeline]):
    """A mapping from names to pipelines: stepwell's own, and those of plug-ins and targets."""

    def _brought(self) -> dict[str, Pipeline]:
        brought = registry()
        of_targets = {name: find_target(name).pipeline for name in brought.targets}
        return {**of_targets, **brought.pipelines}

    def __getitem__(self, name: str) -> Pipeline:
        home = _home(name)
        found = (home and home.OWN.get(name)) or self._brought().get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter({**_own(), **self._brought()})

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<pipelines: {', '.join(self)}>"


PIPELINES = Pipelines()
"""Every target's pipeline; `stepwell.PIPELINES["xnnpack"].after("step", MyRewrite)` is a copy."""


def find_target(name: str) -> Target:
    """Return the target with a name.

    Raises:
        StepwellError: the target is unknown; the message lists the known targets.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise StepwellError(
            f"the target has type {type(name).__name__}, must be a string",
            help="targets are " + ", ".join(known_targets()),
        )
    home = _home(name)
    target: Target | None = home and home.find(name)
    return target or _brought_target(name)


def _brought_target(name: str) -> Target:
    """Return a plug-in's target, or the target of a plug-in's pipeline."""
    brought = registry()
    if name in brought.targets:
        held = brought.targets[name]
        made = held if isinstance(held, Target) else held()
        if not isinstance(made, Target):  # pyright: ignore[reportUnnecessaryIsInstance]
            fact = f"the registered target {name!r} is of type {type(made).__name__}, not Target"
            raise StepwellError(fact, help="stepwell.Target(name, pipeline, artifact, …)")
        return made
    if name in brought.pipeline_targets:
        target = find_target(brought.pipeline_targets[name])
        return replace(target, pipeline=brought.pipelines[name])
    raise unknown("target", name, known_targets())


def known_targets() -> list[str]:
    """Return the names of all listed targets."""
    brought = registry()
    return [*_own(), *brought.targets, *brought.pipeline_targets]
