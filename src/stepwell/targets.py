"""Targets by name: a pipeline, the emitters of its artefacts, and the engine that runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepwell.backends.ethos_u.accelerators import ACCELERATORS
from stepwell.dialects.cmsis.target import CPUS
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.numerics import NUMERICS
from stepwell.ir.options import PIPELINE, ByName, Option, chosen, nearest, read_options
from stepwell.ir.pipeline import Pipeline
from stepwell.ir.program import Program
from stepwell.pipelines import (
    XNNPACK,
    XNNPACK_PUBLISHED,
    cortex_m_pipeline,
    ethosu_pipeline,
    tosa_pipeline,
)
from stepwell.translate.memory import MEMORY, SPEED
from stepwell.translate.rewrites.cmsis import BiasForm
from stepwell.translate.rewrites.cmsis.integer_ports import FLOAT, INTEGERS

TOSA_NAMES = ("tosa-1.0+fp", "tosa-1.0+int", "tosa-1.1+fp", "tosa-1.1+int", "tosa-1.1+fp+mxfp")
"""TOSA targets listed by name; any other combination of profiles and extensions works too."""

PIPELINES: dict[str, Pipeline] = {
    "xnnpack": XNNPACK,
    "xnnpack-published": XNNPACK_PUBLISHED,
    **{name: tosa_pipeline(name) for name in TOSA_NAMES},
    **{name: cortex_m_pipeline(name) for name in CPUS},
    **{name: ethosu_pipeline(name) for name in ACCELERATORS},
}
"""Every target's pipeline; `stepwell.PIPELINES["xnnpack"].after("step", MyRewrite)` is a copy."""

EMBED_UNPACKED_CONSTANTS = Option(
    "embed_unpacked_constants",
    bool,
    False,
    "put constants that XNNPACK does not copy into the delegate, for runtimes known to keep them",
    at=("pte", "pte_and_ptd", "etrecord"),
)
BIAS_FORM = Option(
    "bias_form",
    tuple(map(str, BiasForm)),
    None,
    "where a linear layer's bias is kept; by default as the CPU's kernels read it",
    at=(PIPELINE,),
)
IO = Option(
    "io",
    ByName((FLOAT, *INTEGERS)),
    None,
    "the element type that float inputs and outputs have at the border",
    at=(PIPELINE,),
)
OPTIMISE = Option(
    "optimise",
    (SPEED, MEMORY),
    SPEED,
    "memory: run image ops row by row wherever that saves more RAM than the further calls take",
    at=(PIPELINE,),
)
ARENA = Option(
    "arena",
    range(16, 1 << 32),
    None,
    "the bytes that activations may take; what runs row by row follows from it",
    at=(PIPELINE,),
)
CPU = Option(
    "cpu", CPUS, "cortex-m55", "the CPU beside the NPU, which runs the rest", at=(PIPELINE,)
)
METHOD = Option("method", str, "forward", "the method that is emitted", at=("tosa", "mlir"))

NUMERICS_OF = Option(
    "numerics",
    NUMERICS,
    "torch",
    "which classes of numbers (NaN, infinities, zeros) are kept (`docs/semantics.md`)",
)

OPTIONS: tuple[Option, ...] = (NUMERICS_OF,)
"""What every target takes."""
XNNPACK_OPTIONS = (EMBED_UNPACKED_CONSTANTS,)
CORTEX_M_OPTIONS = (BIAS_FORM, IO, OPTIMISE, ARENA)
ETHOSU_OPTIONS = (CPU, IO)
TOSA_OPTIONS = (METHOD,)

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
    own_options: tuple[Option, ...] = ()
    """What this target takes besides the `OPTIONS` of all."""
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

    @property
    def options(self) -> tuple[Option, ...]:
        """Everything that may be chosen for this target."""
        return (*OPTIONS, *self.own_options)

    def chosen(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options that were given, each found to be one of this target with a value it takes.

        Raises:
            StepwellError: naming every one that is not.
        """
        return chosen(self.options, given, f"target {self.name!r}")

    def read_options(self, texts: Sequence[str]) -> dict[str, Any]:
        """`chosen`, of `name=value` texts from a command line."""
        return read_options(self.options, texts, f"target {self.name!r}")

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The value of every option: what was given, else the default."""
        return {option.name: given.get(option.name, option.default) for option in self.options}

    def for_artefact(
        self, kind: str, given: Mapping[str, Any], more: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What the emitter of an artefact is told.

        Args:
            kind: of the artefact.
            given: options that the program was lowered with; those of other readers are left out.
            more: options for this artefact alone.

        Raises:
            StepwellError: one of `more` is none of this artefact's.
        """
        known = [option for option in self.options if kind in option.at]
        names = {option.name for option in known}
        earlier = [o.name for o in self.options if o.name in more and o.name not in names]
        if earlier:
            raise StepwellError(
                f"{', '.join(earlier)}: chosen when a program is lowered, not when it is emitted",
                help=f"lower(program, {self.name!r}, {earlier[0]}=…)",
            )
        kept = {name: value for name, value in given.items() if name in names}
        return {**kept, **chosen(known, more, f"the .{kind} of target {self.name!r}")}

    def prepare(self, pipeline: Pipeline | None, options: Mapping[str, Any]) -> Pipeline:
        """The pipeline to run: the caller's, or the target's own as the options shape it.

        Args:
            pipeline: the caller's.
            options: those that were given, `chosen` already.

        Raises:
            StepwellError: both a pipeline and an option that shapes the target's own are given.
        """
        if pipeline is None:
            return self.own_pipeline(options)
        shaping = [o.name for o in self.options if PIPELINE in o.at and o.name in options]
        if shaping:
            raise StepwellError(
                f"{', '.join(shaping)}: shapes the target's own pipeline, and another one is given",
                help="leave out either; a pipeline says itself what its steps do",
            )
        return pipeline

    def beyond_pipeline(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options that hold for any pipeline."""
        shaping = {option.name for option in self.options if PIPELINE in option.at}
        return {name: value for name, value in options.items() if name not in shaping}

    def own_pipeline(self, options: Mapping[str, Any]) -> Pipeline:
        """The target's pipeline, as the options shape it."""
        return self.pipeline

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
    from stepwell.backends.executorch.runner import PteSession

    session = PteSession.load(artefact)
    return session.run(*session.laid_out(inputs, method), method=method)


XNNPACK_TARGET = Target(
    "xnnpack",
    XNNPACK,
    "pte",
    {"pte": _xnnpack_pte, "pte_and_ptd": _xnnpack_pte_and_ptd, "etrecord": _xnnpack_etrecord},
    _run_pte,
    XNNPACK_OPTIONS,
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
        TOSA_OPTIONS,
        per_method=True,
    )


@dataclass(frozen=True)
class CortexMTarget(Target):
    """A Cortex-M CPU. `bias_form="both"` keeps a program right on every core."""

    def own_pipeline(self, options: Mapping[str, Any]) -> Pipeline:
        """The CPU's pipeline with the bias and the border where they are asked for."""
        given = {o.name: options[o.name] for o in CORTEX_M_OPTIONS if o.name in options}
        return cortex_m_pipeline(self.name, **given)

    def inventory(self, program: Program) -> tuple[int, dict[str, int]]:
        """No delegates; the ops that are not the library's and not views."""
        from stepwell.backends.cortex_m.inventory import outside

        return 0, outside(program)


def _cortex_m_pte(program: Program) -> bytes:
    from stepwell.backends.cortex_m.emit import to_pte

    return to_pte(program)


def _cortex_m_c(program: Program, *, name: str, header: bool) -> str:
    from stepwell.backends.cortex_m.c_array import to_c_array
    from stepwell.backends.cortex_m.emit import to_pte

    return to_c_array(to_pte(program), name, header=header)


def _cortex_m_sources(program: Program, *, name: str, method: str) -> Any:
    from stepwell.backends.cortex_m.standalone import to_sources

    return to_sources(program, name, method)


def _run_cortex_m(artefact: bytes, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
    from stepwell.backends.cortex_m.read import run_pte

    return run_pte(artefact, inputs, method)


def _cortex_m_target(name: str) -> Target:
    """A target for any CPU; its artefacts run on the desk in a bit-exact interpreter."""
    return CortexMTarget(
        name,
        cortex_m_pipeline(name),
        "pte",
        {"pte": _cortex_m_pte, "c": _cortex_m_c, "sources": _cortex_m_sources},
        _run_cortex_m,
        CORTEX_M_OPTIONS,
    )


@dataclass(frozen=True)
class EthosuTarget(Target):
    """An Ethos-U with a Cortex-M beside it."""

    def own_pipeline(self, options: Mapping[str, Any]) -> Pipeline:
        """The NPU's pipeline with the CPU and the border that are asked for."""
        given = {o.name: options[o.name] for o in ETHOSU_OPTIONS if o.name in options}
        return ethosu_pipeline(self.name, **given)

    def inventory(self, program: Program) -> tuple[int, dict[str, int]]:
        """Delegates; the ops beside them, the CPU library's too."""
        from stepwell.backends.ethos_u.inventory import inventory

        return inventory(program)


def _ethosu_pte(program: Program) -> bytes:
    from stepwell.backends.ethos_u.emit import to_pte

    return to_pte(program)


def _ethosu_estimates(program: Program) -> Any:
    from stepwell.backends.ethos_u.emit import estimates

    return estimates(program)


def _run_ethosu(artefact: bytes, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
    raise StepwellError(
        "there is no simulator of an Ethos-U on this machine",
        help="lowered.program.run computes what the NPU and the CPU compute",
    )


def _ethosu_target(name: str) -> Target:
    pipeline = PIPELINES[name] if name in PIPELINES else ethosu_pipeline(name)
    return EthosuTarget(
        name,
        pipeline,
        "pte",
        {"pte": _ethosu_pte, "estimates": _ethosu_estimates},
        _run_ethosu,
        ETHOSU_OPTIONS,
    )


def find_target(name: str) -> Target:
    """The target of a name.

    Raises:
        StepwellError: naming the targets there are.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise StepwellError(
            f"a target is named by a string, not by a {type(name).__name__}", help=_known(name)
        )
    if name.startswith("tosa-"):
        return _tosa_target(name)
    if name.startswith("cortex-m"):
        return _cortex_m_target(name)
    if name in ACCELERATORS:
        return _ethosu_target(name)
    if name != XNNPACK_TARGET.name:
        raise StepwellError(f"there is no target {name!r}", help=_known(name))
    return XNNPACK_TARGET


def _known(name: object) -> str:
    names = (XNNPACK_TARGET.name, *CPUS, *ACCELERATORS, *TOSA_NAMES)
    return f"{nearest(str(name), names)}targets are {', '.join(names)}"
