"""The target XNNPACK: its options, emitters and engine."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stepwell.backends.executorch.kernels.missing_kernels import emission_problems
from stepwell.backends.executorch.running.inspection import etrecord
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.backends.xnnpack.emit import delegate_problems
from stepwell.backends.xnnpack.pte import (
    to_container,
    to_pte,
    to_pte_and_ptd,
    to_pte_and_ptds,
    write_pte,
)
from stepwell.dialects.xnnpack import DelegateOp
from stepwell.dialects.xnnpack.cpus import CPUS
from stepwell.ir.choices import Choices
from stepwell.ir.diagnostics import Problem
from stepwell.ir.options import Option
from stepwell.ir.program import Program
from stepwell.ir.traversal import walk
from stepwell.pipelines.pass_pipeline import stage_tables
from stepwell.pipelines.xnnpack import XNNPACK, XNNPACK_PUBLISHED
from stepwell.targets.target import Session, Target
from stepwell.translate.decompositions.floats import IN_SINGLE
from stepwell.translate.memory import MEMORY, SPEED

OWN = {pipeline.name: pipeline for pipeline in (XNNPACK, XNNPACK_PUBLISHED)}
"""The pipelines of the targets, by name."""

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
    CPUS,
    None,
    "the CPU to compile for, whose costs and kernels are used; by default any x86 CPU: each "
    "decision takes the form that loses least with AVX2 and with AVX-512",
)

XNNPACK_OPTIONS = (EMBED_UNPACKED_CONSTANTS, SHARES, TUNED, HALF, FOR_CPU)


def _problems(program: Program) -> Sequence[Problem]:
    embed = program.context.option(EMBED_UNPACKED_CONSTANTS.name, False)
    delegates = (op for op in walk(program.module) if isinstance(op, DelegateOp))
    inside = [problem for op in delegates for problem in delegate_problems(op, embed)]
    return [*emission_problems(program, {DelegateOp}), *inside]


def _etrecord(program: Program, exported: Any, method: str, **options: Any) -> Any:
    return etrecord(to_container(program, **options), exported, method)


def _run(
    artifact: bytes, inputs: Sequence[Any], method: str, cpu: str | None = None
) -> tuple[Any, ...]:
    return PteSession.load(artifact, cpu=cpu).call(method, inputs)


def _session(artifact: bytes) -> Session:
    return PteSession.load(artifact).call


XNNPACK_TARGET = Target(
    "xnnpack",
    XNNPACK,
    "pte",
    {
        "pte": to_pte,
        "pte_and_ptd": to_pte_and_ptd,
        "pte_and_ptds": to_pte_and_ptds,
        "etrecord": _etrecord,
    },
    _run,
    XNNPACK_OPTIONS,
    write=write_pte,
    stages=stage_tables.XNNPACK,
    problems=_problems,
    session=_session,
    on_core=_run,
)


def find(name: str) -> Target | None:
    """Return the target with a name; None if there is none."""
    return replace(XNNPACK_TARGET, pipeline=OWN[name]) if name in OWN else None
