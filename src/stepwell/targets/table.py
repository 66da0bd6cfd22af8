"""Targets by name: a pipeline, the emitters of its artifacts, and the engine that runs them.

Arm's targets are in `arm.py`, which is imported when one of them is named. Lowering to XNNPACK thus
needs neither their operators nor the packages that they require.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stepwell.dialects.xnnpack.cpus import CPUS as XNNPACK_CPUS
from stepwell.ir.choices import Choices
from stepwell.ir.diagnostics import Problem, StepwellError
from stepwell.ir.options import Option
from stepwell.ir.program import Program
from stepwell.ir.renderers import Shown
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.pipelines.pass_pipeline import stage_tables
from stepwell.pipelines.xnnpack import XNNPACK, XNNPACK_PUBLISHED
from stepwell.plugins.plugins import registry
from stepwell.plugins.registry import unknown
from stepwell.targets.target import OPTIONS, Session, Target
from stepwell.translate.decompositions.aten.floats import IN_SINGLE
from stepwell.translate.memory import MEMORY, SPEED

__all__ = ["OPTIONS", "PIPELINES", "Target", "find_target", "known_targets"]

_ARMS = ("cortex-m", "ethos-u", "tosa-", "vgf")
"""The name prefixes of Arm's targets."""
_OWN = {pipeline.name: pipeline for pipeline in (XNNPACK, XNNPACK_PUBLISHED)}


def _arms() -> Mapping[str, Pipeline]:
    """Return the pipelines of the Arm targets that are listed by name."""
    from stepwell.targets.arm import OWN

    return OWN


class Pipelines(Shown, Mapping[str, Pipeline]):
    """Pipelines by name: stepwell's own, and those of plug-ins and of their targets."""

    def _brought(self) -> dict[str, Pipeline]:
        brought = registry()
        of_targets = {name: find_target(name).pipeline for name in brought.targets}
        return {**of_targets, **brought.pipelines}

    def __getitem__(self, name: str) -> Pipeline:
        found = _OWN.get(name)
        if found is None and name.startswith(_ARMS):
            found = _arms().get(name)
        found = found or self._brought().get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter({**_OWN, **_arms(), **self._brought()})

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<pipelines: {', '.join(self)}>"


PIPELINES = Pipelines()
"""Every target's pipeline; `stepwell.PIPELINES["xnnpack"].after("step", MyRewrite)` is a copy."""

EMBED_UNPACKED_CONSTANTS = Option(
    "embed_unpacked_constants",
    bool,
    False,
    "put constants that XNNPACK does not copy into the delegate, for runtimes known to keep them",
    at=("pte", "pte_and_ptd", "pte_and_ptds", "etrecord"),
)
TUNED = Option(
    "tuned",
    Choices(),
    None,
    "measurements on a kind of CPU (`stepwell.tune`), which decide where costs are close",
)
SHARES = Option(
    "optimize",
    (SPEED, MEMORY),
    MEMORY,
    "memory: split off delegates if there are many weights, so that loading duplicates "
    "fewer of them; speed: as few as the data flow allows",
)

HALF = Option(
    "half",
    ("as kernels do", IN_SINGLE),
    "as kernels do",
    "the accumulation of layers and products of halves: kernels of CPUs with "
    "half-precision arithmetic accumulate in halves",
)

FOR_CPU = Option(
    "cpu",
    XNNPACK_CPUS,
    None,
    "the CPU to compile for, whose costs and kernels are used; by default any, with default costs",
)

XNNPACK_OPTIONS = (EMBED_UNPACKED_CONSTANTS, SHARES, TUNED, HALF, FOR_CPU)


def _xnnpack_pte(program: Program, **options: Any) -> bytes:
    from stepwell.backends.xnnpack.pte import to_pte

    return to_pte(program, **options)


def _xnnpack_problems(program: Program) -> Sequence[Problem]:
    from stepwell.backends.executorch.kernels.missing_kernels import emission_problems
    from stepwell.backends.xnnpack.emit import delegate_problems
    from stepwell.dialects.xnnpack import DelegateOp

    embed = program.context.option(EMBED_UNPACKED_CONSTANTS.name, False)
    delegates = (op for op in program.module.walk() if isinstance(op, DelegateOp))
    inside = [problem for op in delegates for problem in delegate_problems(op, embed)]
    return [*emission_problems(program, {DelegateOp}), *inside]


def _write_xnnpack_pte(program: Program, **options: Any) -> None:
    from stepwell.backends.xnnpack.pte import write_pte

    write_pte(program, **options)


def _xnnpack_pte_and_ptd(program: Program, **options: Any) -> tuple[bytes, bytes]:
    from stepwell.backends.xnnpack.pte import to_pte_and_ptd

    return to_pte_and_ptd(program, **options)


def _xnnpack_pte_and_ptds(program: Program, **options: Any) -> tuple[bytes, dict[str, bytes]]:
    from stepwell.backends.xnnpack.pte import to_pte_and_ptds

    return to_pte_and_ptds(program, **options)


def _xnnpack_etrecord(program: Program, exported: Any, method: str, **options: Any) -> Any:
    from stepwell.backends.executorch.running.inspection import etrecord
    from stepwell.backends.xnnpack.pte import to_container

    return etrecord(to_container(program, **options), exported, method)


def _run_pte(
    artifact: bytes, inputs: Sequence[Any], method: str, cpu: str | None = None
) -> tuple[Any, ...]:
    from stepwell.backends.executorch.running.runner import PteSession

    return PteSession.load(artifact, cpu=cpu).call(method, inputs)


def _pte_session(artifact: bytes) -> Session:
    from stepwell.backends.executorch.running.runner import PteSession

    return PteSession.load(artifact).call


XNNPACK_TARGET = Target(
    "xnnpack",
    XNNPACK,
    "pte",
    {
        "pte": _xnnpack_pte,
        "pte_and_ptd": _xnnpack_pte_and_ptd,
        "pte_and_ptds": _xnnpack_pte_and_ptds,
        "etrecord": _xnnpack_etrecord,
    },
    _run_pte,
    XNNPACK_OPTIONS,
    write=_write_xnnpack_pte,
    stages=stage_tables.XNNPACK,
    problems=_xnnpack_problems,
    session=_pte_session,
    on_core=_run_pte,
)


def find_target(name: str) -> Target:
    """Return the target with a name.

    Raises:
        StepwellError: there is none; the known targets are listed.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise StepwellError(
            f"a target is named by a string, not by a {type(name).__name__}",
            help="targets are " + ", ".join(known_targets()),
        )
    if name == XNNPACK_TARGET.name:
        return XNNPACK_TARGET
    if name == XNNPACK_PUBLISHED.name:
        return replace(XNNPACK_TARGET, pipeline=XNNPACK_PUBLISHED)
    if name.startswith(_ARMS):
        from stepwell.targets.arm import find

        target = find(name)
        if target is not None:
            return target
    return _brought_target(name)


def _brought_target(name: str) -> Target:
    """Return a plug-in's target, or the target of a plug-in's pipeline."""
    brought = registry()
    if name in brought.targets:
        held = brought.targets[name]
        made = held if isinstance(held, Target) else held()
        if not isinstance(made, Target):  # pyright: ignore[reportUnnecessaryIsInstance]
            fact = f"the registered target {name!r} created a {type(made).__name__}"
            raise StepwellError(fact, help="stepwell.Target(name, pipeline, artifact, …)")
        return made
    if name in brought.pipeline_targets:
        target = find_target(brought.pipeline_targets[name])
        return replace(target, pipeline=brought.pipelines[name])
    raise unknown("target", name, known_targets())


def known_targets() -> list[str]:
    """Return the names of all listed targets."""
    brought = registry()
    return [*_OWN, *_arms(), *brought.targets, *brought.pipeline_targets]
