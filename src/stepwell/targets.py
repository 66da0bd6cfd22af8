"""Targets by name: a pipeline, the emitters of its artefacts, and the engine that runs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from stepwell.backends.ethos_u.accelerators import ACCELERATORS
from stepwell.dialects.cmsis.target import CPUS
from stepwell.dialects.tosa.targets import level_of
from stepwell.dialects.xnnpack.cpus import CPUS as XNNPACK_CPUS
from stepwell.ir.above import Shown
from stepwell.ir.choices import Choices
from stepwell.ir.diagnostics import NoEngine, StepwellError
from stepwell.ir.options import PIPELINE, ByName, Option, Ranges
from stepwell.ir.pipeline import Pipeline
from stepwell.ir.program import Program
from stepwell.npu_pipelines import BESIDE_CPU, CYCLES, ethosu_pipeline, tosa_beside_cpu_pipeline
from stepwell.pipelines import XNNPACK, XNNPACK_PUBLISHED, cortex_m_pipeline, tosa_pipeline
from stepwell.plugins import registry
from stepwell.registry import unknown
from stepwell.target import OPTIONS, Session, Target
from stepwell.translate.memory import MEMORY, SPEED
from stepwell.translate.rewrites.cmsis import BiasForm
from stepwell.translate.rewrites.cmsis.placing.integer_ports import FLOAT, INTEGERS
from stepwell.translate.rewrites.xnnpack.floats.widen_products_of_halves import IN_SINGLE

__all__ = ["OPTIONS", "PIPELINES", "Target", "find_target", "known_targets"]

TOSA_NAMES = (
    "tosa-1.0+fp",
    "tosa-1.0+int",
    "tosa-1.1+fp",
    "tosa-1.1+int",
    "tosa-1.1+fp+mx_common+mx_fp8e4m3",
    "tosa-1.1+fp+mxfp",
)
"""TOSA targets listed by name; any other combination of profiles and extensions works too."""
VGF, VGF_TOSA = "vgf", "tosa-1.0+fp+int"
"""The target of Vulkan's ML extensions, and the TOSA that its files hold."""

_OWN: dict[str, Pipeline] = {
    "xnnpack": XNNPACK,
    "xnnpack-published": XNNPACK_PUBLISHED,
    **{name: tosa_pipeline(name) for name in TOSA_NAMES},
    VGF: replace(tosa_pipeline(VGF_TOSA), name=VGF),
    **{name: cortex_m_pipeline(name) for name in CPUS},
    **{name: ethosu_pipeline(name) for name in ACCELERATORS},
}


class Pipelines(Shown, Mapping[str, Pipeline]):
    """Pipelines by name: the house's, and those of plug-ins and of their targets."""

    def _brought(self) -> dict[str, Pipeline]:
        brought = registry()
        of_targets = {name: find_target(name).pipeline for name in brought.targets}
        return {**of_targets, **brought.pipelines}

    def __getitem__(self, name: str) -> Pipeline:
        found = _OWN.get(name) or self._brought().get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter({**_OWN, **self._brought()})

    def __len__(self) -> int:
        return len({**_OWN, **self._brought()})

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
ASKED = Option(
    "optimise",
    (SPEED, CYCLES),
    SPEED,
    "cycles: ask Vela for the cycles of every form of linear layers, and write the best one",
    at=(PIPELINE,),
)
METHOD = Option("method", str, "forward", "the method that is emitted", at=("tosa", "mlir", "vgf"))
RANGES = Option(
    "ranges",
    Ranges(),
    None,
    "the integers that inputs hold, which proves that int64 fits into TOSA's int32; calls are held "
    "to it",
)

TUNED = Option(
    "tuned",
    Choices(),
    None,
    "what was measured on a kind of CPU (`stepwell.tune`): decides where costs are close",
)
SHARES = Option(
    "optimise",
    (SPEED, MEMORY),
    SPEED,
    "memory: make several delegates where weights are many, so that loading holds fewer twice",
)

HALF = Option(
    "half",
    ("as kernels do", IN_SINGLE),
    "as kernels do",
    "how layers and products of halves add up: kernels of CPUs with half arithmetic do in halves",
)

FOR_CPU = Option(
    "cpu",
    tuple(XNNPACK_CPUS),
    None,
    "the CPU it is made for, whose costs and kernels decide; by default any, and the usual costs",
)

XNNPACK_OPTIONS = (EMBED_UNPACKED_CONSTANTS, SHARES, TUNED, HALF, FOR_CPU)
CORTEX_M_OPTIONS = (BIAS_FORM, IO, OPTIMISE, ARENA)
ETHOSU_OPTIONS = (CPU, IO, ASKED)
BESIDE_CPU_OPTIONS = (CPU, IO)
TOSA_OPTIONS = (METHOD, RANGES)
TOSA_DIALECTS = ("tosa",)


def _xnnpack_pte(program: Program, **options: Any) -> bytes:
    from stepwell.backends.xnnpack.pte import to_pte

    return to_pte(program, **options)


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
    from stepwell.backends.executorch.inspection import etrecord
    from stepwell.backends.xnnpack.pte import to_container

    return etrecord(to_container(program, **options), exported, method)


def _run_pte(
    artefact: bytes, inputs: Sequence[Any], method: str, cpu: str | None = None
) -> tuple[Any, ...]:
    from stepwell.backends.executorch.runner import PteSession

    session = PteSession.load(artefact, cpu=cpu)
    return session.run(*session.laid_out(inputs, method), method=method)


def _pte_session(artefact: bytes) -> Session:
    from stepwell.backends.executorch.runner import PteSession

    loaded = PteSession.load(artefact)
    return lambda method, inputs: loaded.run(*loaded.laid_out(inputs, method), method=method)


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
    session=_pte_session,
    on_core=_run_pte,
)


def _tosa_bytes(program: Program, **options: Any) -> bytes:
    from stepwell.backends.tosa import to_tosa

    return to_tosa(program, **options)


def _tosa_mlir(program: Program, **options: Any) -> str:
    from stepwell.backends.tosa.mlir_text import to_mlir

    return to_mlir(program, **options)


def _run_tosa(target: str, artefact: bytes, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
    from stepwell.backends.tosa import run_reference_model

    return run_reference_model(artefact, inputs, level_of(target))


def _tosa_session(target: str, artefact: bytes) -> Session:
    from stepwell.backends.tosa.reference_model import ReferenceSession

    loaded = ReferenceSession(artefact, level_of(target))
    return lambda method, inputs: loaded.run(inputs)


def _tosa_target(name: str) -> Target:
    """A target for any TOSA name; the specification's reference model is its engine."""
    pipeline = _OWN[name] if name in _OWN else tosa_pipeline(name)
    return Target(
        name,
        pipeline,
        "tosa",
        {"tosa": _tosa_bytes, "mlir": _tosa_mlir},
        partial(_run_tosa, name),
        TOSA_OPTIONS,
        per_method=True,
        dialects=TOSA_DIALECTS,
        session=partial(_tosa_session, name),
    )


def _vgf(program: Program, **options: Any) -> bytes:
    from stepwell.backends.tosa.vgf import to_vgf

    return to_vgf(program, **options)


def _run_vgf(artefact: bytes, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
    from stepwell.backends.tosa.emulation import run_vgf

    return run_vgf(artefact, inputs)


VGF_TARGET = Target(
    VGF,
    _OWN[VGF],
    "vgf",
    {"vgf": _vgf, "tosa": _tosa_bytes, "mlir": _tosa_mlir},
    _run_vgf,
    TOSA_OPTIONS,
    per_method=True,
    dialects=TOSA_DIALECTS,
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


def _cortex_m_sources(program: Program, *, name: str, method: str, kernels: str) -> Any:
    from stepwell.backends.cortex_m.standalone import to_sources

    return to_sources(program, name, method, kernels)


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
    """An Ethos-U, or what takes TOSA, with a CPU beside it."""

    def own_pipeline(self, options: Mapping[str, Any]) -> Pipeline:
        """The pipeline with the CPU and the border that are asked for."""
        given = {o.name: options[o.name] for o in self.own_options if o.name in options}
        makes = tosa_beside_cpu_pipeline if self.name.endswith(BESIDE_CPU) else ethosu_pipeline
        return makes(self.name, **given)

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
    raise NoEngine(
        "there is no simulator of an Ethos-U on this machine",
        help="lowered.program.run computes what the NPU and the CPU compute",
    )


def _ethosu_target(name: str) -> Target:
    pipeline = _OWN[name] if name in _OWN else ethosu_pipeline(name)
    return EthosuTarget(
        name,
        pipeline,
        "pte",
        {"pte": _ethosu_pte, "estimates": _ethosu_estimates},
        _run_ethosu,
        ETHOSU_OPTIONS,
    )


def _tosa_delegates(program: Program) -> Any:
    from stepwell.backends.ethos_u.emit import delegates

    return delegates(program)


def _run_beside_cpu(artefact: bytes, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
    raise NoEngine(
        "ExecuTorch's runtime has no backend for TOSA",
        help="lowered.program.run computes what the program means; lowered.emit('delegates') gives "
        "the flatbuffers, which the reference model runs",
    )


def _tosa_beside_cpu_target(name: str) -> Target:
    return EthosuTarget(
        name,
        tosa_beside_cpu_pipeline(name),
        "pte",
        {"pte": _ethosu_pte, "delegates": _tosa_delegates},
        _run_beside_cpu,
        BESIDE_CPU_OPTIONS,
    )


def find_target(name: str) -> Target:
    """The target of a name.

    Raises:
        StepwellError: naming the targets there are.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise StepwellError(
            f"a target is named by a string, not by a {type(name).__name__}",
            help="targets are " + ", ".join(known_targets()),
        )
    if name.startswith("tosa-"):
        beside = name.endswith(BESIDE_CPU)
        return _tosa_beside_cpu_target(name) if beside else _tosa_target(name)
    if name.startswith("cortex-m"):
        return _cortex_m_target(name)
    if name == VGF:
        return VGF_TARGET
    if name in ACCELERATORS:
        return _ethosu_target(name)
    if name == XNNPACK_TARGET.name:
        return XNNPACK_TARGET
    if name == XNNPACK_PUBLISHED.name:
        return replace(XNNPACK_TARGET, pipeline=XNNPACK_PUBLISHED)
    return _brought_target(name)


def _brought_target(name: str) -> Target:
    """A plug-in's target, or the one that a plug-in's pipeline is for."""
    brought = registry()
    if name in brought.targets:
        held = brought.targets[name]
        made = held if isinstance(held, Target) else held()
        if not isinstance(made, Target):  # pyright: ignore[reportUnnecessaryIsInstance]
            fact = f"what is registered as target {name!r} makes a {type(made).__name__}"
            raise StepwellError(fact, help="stepwell.Target(name, pipeline, artefact, …)")
        return made
    if name in brought.pipeline_targets:
        target = find_target(brought.pipeline_targets[name])
        return replace(target, pipeline=brought.pipelines[name])
    raise unknown("target", name, known_targets())


def known_targets() -> list[str]:
    """The names of all targets that are listed by name."""
    brought = registry()
    own = (XNNPACK_TARGET.name, XNNPACK_PUBLISHED.name, *CPUS, *ACCELERATORS, *TOSA_NAMES, VGF)
    return [*own, *brought.targets, *brought.pipeline_targets]
