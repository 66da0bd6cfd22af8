"""Arm's targets (Cortex-M, Ethos-U, TOSA, VGF), and C for any core. Imported when one is named."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from xdsl.ir import Operation

from stepwell.backends.cortex_m import emit as cortex_m
from stepwell.backends.cortex_m.c.array import to_c_array
from stepwell.backends.cortex_m.c.host import run_sources, session_of
from stepwell.backends.cortex_m.c.projects import CMAKE, PROJECTS
from stepwell.backends.cortex_m.c.standalone import to_sources
from stepwell.backends.cortex_m.read import run_pte
from stepwell.backends.ethos_u import emit as ethos_u
from stepwell.backends.ethos_u.configuration import choose_config
from stepwell.backends.ethos_u.vela import ACCELERATORS, is_installed
from stepwell.backends.executorch.kernels.kernel_calls import is_reshape
from stepwell.backends.tosa import run_reference_model, to_tosa
from stepwell.backends.tosa.emit import emission_problems as tosa_problems
from stepwell.backends.tosa.mlir_text import to_mlir
from stepwell.backends.tosa.reference_model import ReferenceSession
from stepwell.backends.tosa.vgf import run_vgf, to_vgf
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.cmsis.ops import CmsisOp
from stepwell.dialects.cmsis.ops.places import is_view
from stepwell.dialects.cmsis.target import C_TARGETS, CPUS
from stepwell.dialects.ethosu import BinaryOp, DelegateOp
from stepwell.dialects.tosa.targets import level_of
from stepwell.ir.diagnostics import NoEngine, Problem, UnsupportedError, describe_op
from stepwell.ir.options import PIPELINE, ByName, Option
from stepwell.ir.program import Program
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.pipelines.arm import cortex_m_pipeline, tosa_pipeline
from stepwell.pipelines.npu import BESIDE_CPU, CYCLES, ethosu_pipeline, tosa_beside_cpu_pipeline
from stepwell.pipelines.pass_pipeline import stage_tables
from stepwell.targets.target import Session, Target
from stepwell.translate.memory import MEMORY, SPEED
from stepwell.translate.rewrites.cmsis import BiasForm
from stepwell.translate.rewrites.cmsis.layout.channels_last_ports import AS_EXPORTED, CHANNELS_LAST
from stepwell.translate.rewrites.cmsis.layout.integer_ports import FLOAT, INTEGERS

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
"""The target of Vulkan's ML extensions, and the TOSA target of the program in its files."""

OWN: dict[str, Pipeline] = {
    **{name: tosa_pipeline(name) for name in TOSA_NAMES},
    VGF: replace(tosa_pipeline(VGF_TOSA), name=VGF),
    **{name: cortex_m_pipeline(name) for name in (*CPUS, *C_TARGETS)},
    **{name: ethosu_pipeline(name) for name in ACCELERATORS},
}
"""The pipelines of targets that are listed by name."""

BIAS_FORM = Option(
    "bias_form",
    tuple(map(str, BiasForm)),
    None,
    "the form of a linear layer's bias; by default that of the CPU's kernels",
    at=(PIPELINE,),
)
IO = Option(
    "io",
    ByName((FLOAT, *INTEGERS)),
    None,
    "the element type of float inputs and outputs at the boundary",
    at=(PIPELINE,),
)
OPTIMIZE = Option(
    "optimize",
    (SPEED, MEMORY),
    SPEED,
    "memory: run image ops row by row where that saves more RAM than the additional calls take",
    at=(PIPELINE,),
)
IO_LAYOUT = Option(
    "io_layout",
    (AS_EXPORTED, CHANNELS_LAST),
    AS_EXPORTED,
    "channels last: images that would be transposed at an input or output are taken and "
    "returned so",
    at=(PIPELINE,),
)
ARENA = Option(
    "arena",
    range(16, 1 << 32),
    None,
    "the bytes available for activations; determines the ops that run row by row",
    at=(PIPELINE,),
)
CPU = Option(
    "cpu",
    CPUS,
    "cortex-m55",
    "the CPU next to the NPU, which runs the other operations",
    at=(PIPELINE,),
)
ASKED = Option(
    "optimize",
    (SPEED, CYCLES),
    SPEED,
    "cycles: let Vela estimate the cycles of every form of linear layers, and use the best one",
    at=(PIPELINE,),
)
VELA_CONFIG = Option(
    "vela_config",
    Path,
    None,
    "a file of Vela's with the board's system configurations and memory modes; by default Vela's "
    "own `Arm/vela.ini`",
    at=(PIPELINE,),
)
SYSTEM_CONFIG = Option(
    "system_config",
    str,
    None,
    "the board's clock, ports and memories: a name of the file; by default as in ExecuTorch's flow",
    at=(PIPELINE,),
)
MEMORY_MODE = Option(
    "memory_mode",
    str,
    None,
    "where constants and activations are: a name of the file (`Sram_Only`, `Shared_Sram`, …); by "
    "default as in ExecuTorch's flow",
    at=(PIPELINE,),
)
METHOD = Option("method", str, "forward", "the method that is emitted", at=("tosa", "mlir", "vgf"))
PROJECT = Option(
    "project",
    tuple(PROJECTS),
    CMAKE,
    "the files around C without a runtime, as a build system takes them",
    at=("c",),
)
CORTEX_M_OPTIONS = (BIAS_FORM, IO, IO_LAYOUT, OPTIMIZE, ARENA, replace(PROJECT, at=("sources",)))
C_OPTIONS = (IO, IO_LAYOUT, OPTIMIZE, ARENA, PROJECT)
VELA_OPTIONS = (VELA_CONFIG, SYSTEM_CONFIG, MEMORY_MODE)
ETHOSU_OPTIONS = (CPU, IO, ASKED, *VELA_OPTIONS)
BESIDE_CPU_OPTIONS = (CPU, IO)
TOSA_OPTIONS = (METHOD,)
TOSA_DIALECTS = ("tosa",)


def _run_tosa(target: str, artifact: bytes, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
    return run_reference_model(artifact, inputs, level_of(target))


def _tosa_session(target: str, artifact: bytes) -> Session:
    loaded = ReferenceSession(artifact, level_of(target))
    return lambda method, inputs: loaded.run(inputs)


def _tosa_target(name: str) -> Target:
    """Return the target of a name like `tosa-1.0+fp`; its engine is TOSA's reference model."""
    pipeline = OWN[name] if name in OWN else tosa_pipeline(name)
    return Target(
        name,
        pipeline,
        "tosa",
        {"tosa": to_tosa, "mlir": to_mlir},
        partial(_run_tosa, name),
        TOSA_OPTIONS,
        per_method=True,
        dialects=TOSA_DIALECTS,
        stages=stage_tables.TOSA,
        problems=tosa_problems,
        session=partial(_tosa_session, name),
    )


def _run_vgf(artifact: bytes, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
    return run_vgf(artifact, inputs)


VGF_TARGET = Target(
    VGF,
    OWN[VGF],
    "vgf",
    {"vgf": to_vgf, "tosa": to_tosa, "mlir": to_mlir},
    _run_vgf,
    TOSA_OPTIONS,
    per_method=True,
    dialects=TOSA_DIALECTS,
    stages=stage_tables.TOSA,
    problems=tosa_problems,
)


def _is_aten_call(op: Operation) -> bool:
    """Whether a kernel of ATen runs an op; a view runs no kernel."""
    return isinstance(op, SchemaOp) and not is_reshape(op)


@dataclass(frozen=True)
class CortexMTarget(Target):
    """The target of a Cortex-M CPU, or of C for another core.

    `bias_form="both"` keeps a program correct on every Cortex-M.
    """

    def own_pipeline(self, options: Mapping[str, Any]) -> Pipeline:
        """Return the CPU's pipeline with the requested bias form and boundary types."""
        own = [o.name for o in self.own_options if PIPELINE in o.at]
        given = {name: options[name] for name in own if name in options}
        return cortex_m_pipeline(self.name, **given)

    def outside(self, program: Program) -> Sequence[Operation]:
        """Return the ops that kernels of ATen run."""
        return [op for op in program.module.walk() if _is_aten_call(op)]


def _cortex_m_c(program: Program, *, name: str, header: bool) -> str:
    return to_c_array(cortex_m.to_pte(program), name, header=header)


def _cortex_m_target(name: str) -> Target:
    """Return the target of a CPU; a bit-exact interpreter runs its artifacts on the host."""
    return CortexMTarget(
        name,
        cortex_m_pipeline(name),
        "pte",
        {"pte": cortex_m.to_pte, "c": _cortex_m_c, "sources": to_sources},
        run_pte,
        CORTEX_M_OPTIONS,
        stages=stage_tables.CMSIS,
        problems=cortex_m.emission_problems,
    )


def _c_problems(program: Program) -> Sequence[Problem]:
    try:
        to_sources(program)
    except UnsupportedError as error:
        return error.problems
    return ()


def _c_target(name: str) -> Target:
    """Return the target of C for a core; a C compiler of this machine builds and runs it."""
    return CortexMTarget(
        name,
        cortex_m_pipeline(name),
        "c",
        {"c": to_sources},
        run_sources,
        C_OPTIONS,
        stages=stage_tables.CMSIS,
        problems=_c_problems,
        session=session_of,
    )


@dataclass(frozen=True)
class EthosuTarget(Target):
    """The target of an Ethos-U, or of another TOSA device, with a host CPU."""

    def own_pipeline(self, options: Mapping[str, Any]) -> Pipeline:
        """Return the pipeline with the requested CPU and boundary types."""
        given = {o.name: options[o.name] for o in self.own_options if o.name in options}
        if self.name.endswith(BESIDE_CPU):
            return tosa_beside_cpu_pipeline(self.name, **given)
        board = [given.pop(option.name, None) for option in VELA_OPTIONS]
        return ethosu_pipeline(self.name, **given, vela=choose_config(self.name, *board))

    def outside(self, program: Program) -> Sequence[Operation]:
        """Return the ops outside delegates, on the CPU."""
        ops = (op for func in program.methods.values() for op in func.body.block.ops)
        own = (op for op in ops if _is_aten_call(op) or isinstance(op, CmsisOp))
        return [op for op in own if not is_view(op)]

    def estimates(self, program: Program) -> tuple[Any, ...]:
        """Return Vela's estimates, which name the board; none without Vela."""
        known = self.name in ACCELERATORS and is_installed()
        return tuple(ethos_u.estimates(program)) if known else ()


def _ethosu_problems(program: Program) -> Sequence[Problem]:
    refused = [Problem(reason, describe_op(op)) for op, reason in ethos_u.refusals(program)]
    return [*cortex_m.emission_problems(program, {DelegateOp, BinaryOp}), *refused]


def _run_ethosu(artifact: bytes, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
    raise NoEngine(
        "there is no simulator of an Ethos-U on this machine",
        help="lowered.program.run computes what the NPU and the CPU compute",
    )


def _ethosu_target(name: str) -> Target:
    pipeline = OWN[name] if name in OWN else ethosu_pipeline(name)
    return EthosuTarget(
        name,
        pipeline,
        "pte",
        {"pte": ethos_u.to_pte, "estimates": ethos_u.estimates},
        _run_ethosu,
        ETHOSU_OPTIONS,
        stages=stage_tables.BESIDE_CPU,
        problems=_ethosu_problems,
    )


def _run_beside_cpu(artifact: bytes, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
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
        {"pte": ethos_u.to_pte, "delegates": ethos_u.delegates},
        _run_beside_cpu,
        BESIDE_CPU_OPTIONS,
        stages=stage_tables.BESIDE_CPU,
        problems=_ethosu_problems,
    )


def find(name: str) -> Target | None:
    """Return the target with a name, listed or not; None if it is not an Arm target."""
    if name.startswith("tosa-"):
        beside = name.endswith(BESIDE_CPU)
        return _tosa_beside_cpu_target(name) if beside else _tosa_target(name)
    if name.startswith("cortex-m"):
        return _cortex_m_target(name)
    if name in C_TARGETS:
        return _c_target(name)
    if name == VGF:
        return VGF_TARGET
    return _ethosu_target(name) if name in ACCELERATORS else None
