"""Targets by name: a pipeline, the emitters of its artefacts, and the engine that runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepwell.backends.cortex_m.pipeline import cortex_m_pipeline
from stepwell.dialects.cmsis.target import CPUS
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.pipeline import Pipeline
from stepwell.ir.program import Program
from stepwell.pipelines import XNNPACK, XNNPACK_PUBLISHED, tosa_pipeline

TOSA_NAMES = ("tosa-1.0+fp", "tosa-1.0+int", "tosa-1.1+fp", "tosa-1.1+int", "tosa-1.1+fp+mxfp")
"""TOSA targets listed by name; any other combination of profiles and extensions works too."""

PIPELINES: dict[str, Pipeline] = {
    "xnnpack": XNNPACK,
    "xnnpack-published": XNNPACK_PUBLISHED,
    **{name: tosa_pipeline(name) for name in TOSA_NAMES},
    **{name: cortex_m_pipeline(name) for name in CPUS},
}
"""Every target's pipeline; `stepwell.PIPELINES["xnnpack"].after("step", MyRewrite)` is a copy."""

Emitter = Callable[..., Any]
Runner = Callable[[bytes, Sequence[Any], str], tuple[Any, ...]]


@dataclass(frozen=True)
class Target:
    """One target. Imports of emitters and engines happen when they are used."""

    name: str
    pipeline: Pipeline
    artefact: str
    emitters: Mapping[str, Emitter]
    runner: Runner
    per_method: bool = False
    """Whether an artefact holds one method, which its emitter is told."""
    in_parts: Emitter | None = None
    """The artefact as parts of a file, where that saves joining them."""

    def emitter(self, kind: str) -> Emitter:
        """The emitter of an artefact kind.

        Raises:
            StepwellError: this target has no such artefact.
        """
        if kind not in self.emitters:
            raise StepwellError(
                f"target {self.name!r} has no {kind} artefact",
                help="it has " + ", ".join(f"to_{name}()" for name in self.emitters),
            )
        return self.emitters[kind]

    def prepare(self, pipeline: Pipeline | None, options: Mapping[str, Any]) -> Pipeline:
        """The pipeline to run: the caller's or the target's own."""
        return pipeline if pipeline is not None else self.pipeline

    def inventory(self, program: Program) -> tuple[int, dict[str, int]]:
        """(number of delegates, op name → count of the ops outside them)."""
        from stepwell.backends.inventory import inventory

        return inventory(program)

    def run(self, artefact: bytes, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
        """Run an artefact on this target's engine."""
        return self.runner(artefact, inputs, method)


def _xnnpack_pte(program: Program, **options: Any) -> bytes:
    from stepwell.backends.xnnpack.pte import to_pte

    return to_pte(program, **options)


def _xnnpack_pte_parts(program: Program, **options: Any) -> list[bytes | memoryview]:
    from stepwell.backends.xnnpack.pte import to_pte_parts

    return to_pte_parts(program, **options)


def _xnnpack_pte_and_ptd(program: Program, **options: Any) -> tuple[bytes, bytes]:
    from stepwell.backends.xnnpack.pte import to_pte_and_ptd

    return to_pte_and_ptd(program, **options)


def _xnnpack_etrecord(program: Program, exported: Any, method: str, **options: Any) -> Any:
    from stepwell.backends.executorch.inspection import etrecord
    from stepwell.backends.xnnpack.pte import to_container

    return etrecord(to_container(program, **options), exported, method)


def _run_pte(artefact: bytes, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
    from stepwell.backends.executorch.runner import run_pte

    return run_pte(artefact, inputs, method)


XNNPACK_TARGET = Target(
    "xnnpack",
    XNNPACK,
    "pte",
    {"pte": _xnnpack_pte, "pte_and_ptd": _xnnpack_pte_and_ptd, "etrecord": _xnnpack_etrecord},
    _run_pte,
    in_parts=_xnnpack_pte_parts,
)


def _tosa_bytes(program: Program, **options: Any) -> bytes:
    from stepwell.backends.tosa import to_tosa

    return to_tosa(program, **options)


def _tosa_mlir(program: Program, **options: Any) -> str:
    from stepwell.backends.tosa.mlir_text import to_mlir

    return to_mlir(program, **options)


def _run_tosa(artefact: bytes, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
    from stepwell.backends.tosa import run_reference_model

    return run_reference_model(artefact, inputs)


def _tosa_target(name: str) -> Target:
    """A target for any TOSA name; the specification's reference model is its engine."""
    pipeline = PIPELINES[name] if name in PIPELINES else tosa_pipeline(name)
    return Target(
        name,
        pipeline,
        "tosa",
        {"tosa": _tosa_bytes, "mlir": _tosa_mlir},
        _run_tosa,
        per_method=True,
    )


@dataclass(frozen=True)
class CortexMTarget(Target):
    """A Cortex-M CPU. `bias_form="both"` keeps a program right on every core."""

    def prepare(self, pipeline: Pipeline | None, options: Mapping[str, Any]) -> Pipeline:
        """The pipeline to run: the caller's, or the CPU's with the bias where it is asked for."""
        if pipeline is not None:
            return pipeline
        return cortex_m_pipeline(self.name, options.get("bias_form"))

    def inventory(self, program: Program) -> tuple[int, dict[str, int]]:
        """No delegates; the ops that are not the library's and not views."""
        from stepwell.backends.cortex_m.inventory import outside

        return 0, outside(program)


def _cortex_m_pte(program: Program, **options: Any) -> bytes:
    from stepwell.backends.cortex_m.emit import to_pte

    return to_pte(program)


def _cortex_m_c(program: Program, *, name: str, header: bool, **options: Any) -> str:
    from stepwell.backends.cortex_m.c_array import to_c_array
    from stepwell.backends.cortex_m.emit import to_pte

    return to_c_array(to_pte(program), name, header=header)


def _run_cortex_m(artefact: bytes, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
    from stepwell.backends.cortex_m.read import run_pte

    return run_pte(artefact, inputs, method)


def _cortex_m_target(name: str) -> Target:
    """A target for any CPU; its artefacts run on the desk in a bit-exact interpreter."""
    return CortexMTarget(
        name,
        cortex_m_pipeline(name),
        "pte",
        {"pte": _cortex_m_pte, "c": _cortex_m_c},
        _run_cortex_m,
    )


def find_target(name: str) -> Target:
    """The target of a name.

    Raises:
        StepwellError: naming the targets there are.
    """
    if name.startswith("tosa-"):
        return _tosa_target(name)
    if name.startswith("cortex-m"):
        return _cortex_m_target(name)
    if name != XNNPACK_TARGET.name:
        known = ", ".join((XNNPACK_TARGET.name, *CPUS, *TOSA_NAMES))
        raise StepwellError(f"there is no target {name!r}", help=f"targets are {known}")
    return XNNPACK_TARGET
