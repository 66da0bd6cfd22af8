"""The pipelines of targets with a CPU and an accelerator: an Ethos-U, or any TOSA device."""

from __future__ import annotations

from dataclasses import replace

from stepwell.backends.ethos_u.emit import estimates, refusals
from stepwell.backends.executorch.decompose import DecomposeForKernels
from stepwell.dialects.cmsis.target import Target
from stepwell.dialects.cmsis.target import target as find_cpu
from stepwell.dialects.ethosu import ETHOSU_LEVEL, VelaConfig
from stepwell.dialects.tosa.targets import parse_target
from stepwell.ir.diagnostics import node_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.cleanup import RemoveDeadCode, ShareCommonSubexpressions
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import GreedyRewrites, NamedPass, Step
from stepwell.pipelines.arm import BY_PROFILES, PLACE_LAYOUTS, SPELL_MOVES
from stepwell.translate.canonicalize.pipeline import CANONICAL_FORM, NOOPS, SHAPES
from stepwell.translate.lowerings.cmsis import borders as cmsis_borders
from stepwell.translate.lowerings.cmsis.order import TO_CMSIS
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.tosa.integers.layers import Rows
from stepwell.translate.rewrites.cmsis import (
    BiasForm,
    ExplainFloats,
    FoldKernelSum,
    IntegerPorts,
    Io,
    StateTarget,
)
from stepwell.translate.rewrites.constants.fold_constants import FoldConstants
from stepwell.translate.rewrites.ethosu import (
    FewestAxes,
    LowerForNpu,
    PartitionEthosu,
    RescaleConstant,
    ShuffledByPhases,
    SpreadConstant,
    TransposedByPhases,
    WithoutUnits,
    hoist_reshape_over_rescale,
    relabel_transposes,
    rescale_for_each_reader,
)
from stepwell.translate.rewrites.quant import CANCEL_CASTS, TYPE_QUANTIZATION
from stepwell.translate.rewrites.tosa.integers.absorb_pad import AbsorbPad, PadAfterReshape
from stepwell.translate.rewrites.tosa.integers.compose_byte_functions import ComposeByteFunctions
from stepwell.translate.rewrites.tosa.layout.order import (
    FEWER_INTEGERS,
    INTEGERS,
    LAYOUT,
    TO_TOSA,
    TOSA,
    integers_on_npu,
    layouts,
)

CYCLES = "cycles"
"""The value of `optimize` that lets Vela estimate cycles."""
BESIDE_CPU = "+cpu"
"""The name suffix of TOSA targets whose programs may also contain operations for a CPU."""
CPU = "cortex-m55"
"""The default CPU next to an accelerator."""
OVER_INTEGERS = ("arrange", "lower")
"""Passes that support any element type, applied here to the integers between casts."""


def ethosu_pipeline(
    accelerator: str,
    cpu: Target | str = CPU,
    io: Io | None = None,
    optimize: str = "speed",
    vela: VelaConfig | None = None,
) -> Pipeline:
    """Return the pipeline for an NPU and its host CPU.

    Args:
        accelerator: `ethos-u55-128`, `ethos-u85-256`, …
        cpu: the CPU that runs the other operations, by CMSIS-NN's operators or in floating point.
        io: the element type of float inputs and outputs, `int8` or `int16`, for all or by name.
        optimize: `cycles` lets Vela estimate the cycles of each form of linear layers, and uses the
            one with the fewest. By default, the rows of a linear layer are the columns of an image.
        vela: the board that Vela compiles for; by default the one that ExecuTorch's flow assumes.
    """
    to_npu = steps_to_npu(accelerator, "width")
    fuse = (GreedyRewrites("keep-bytes", tuple(rule() for rule in rescale_for_each_reader.RULES)),)
    behind = _on_cpu(accelerator, cpu, fuse, vela)
    lower = LowerForNpu(accelerator, to_npu, OVER_INTEGERS, behind=behind, refused=_refused)
    if optimize == CYCLES:
        others = tuple((rows, steps_to_npu(accelerator, rows)) for rows in ("height", "batch"))
        lower = replace(lower, others=others, cycles=_cycles)
    return Pipeline(accelerator, (*_quantized(io), lower, *behind))


def steps_to_npu(accelerator: str, rows: Rows) -> tuple[Step, ...]:
    """Return the passes that lower quantized layers to an NPU. `rows` says which axis of an image
    holds the rows of a linear layer: batch, height or width.
    """
    return (
        GreedyRewrites("lower-int8", (*integers_on_npu(rows), *CANCEL_CASTS)),
        GreedyRewrites("arrange", (*NOOPS, *SHAPES, *TOSA.phase("arrange"))),
        GreedyRewrites("lower", TO_TOSA),
        *layouts(*LAYOUT, ComposeByteFunctions(), PadAfterReshape(), AbsorbPad()),
        GreedyRewrites("relabel-ports", tuple(rule() for rule in relabel_transposes.RULES)),
        GreedyRewrites(
            "operate-on-bytes",
            (
                *hoist_reshape_over_rescale.RULES.named("hoist-reshape-over-rescale"),
                RescaleConstant(),
                SpreadConstant(),
                TransposedByPhases(),
                ShuffledByPhases(),
                FewestAxes() if accelerator.startswith("ethos-u55") else WithoutUnits(),
            ),
        ),
    )


def _refused(program: Program) -> dict[str, str]:
    """Return the model's nodes that Vela refuses, and why; none if it is not installed."""
    found = reversed([*refusals(program)])
    return {node: why for op, why in found if (node := node_name(op.location)) is not None}


def _cycles(program: Program) -> int:
    """Return Vela's estimate of cycles for all delegates."""
    return sum(estimate.cycles for estimate in estimates(program))


def tosa_beside_cpu_pipeline(name: str, cpu: Target | str = CPU, io: Io | None = None) -> Pipeline:
    """Return the pipeline for maximal TOSA subgraphs, and a CPU that runs the other operations.

    Args:
        name: `tosa-1.0+fp+cpu`, `tosa-1.0+int+cpu`, …
        cpu: the CPU that runs quantized layers that TOSA lacks; floats run on ExecuTorch's portable
            kernels.
        io: the element type of float inputs and outputs, for all or by name.
    """
    target = parse_target(name.removesuffix(BESIDE_CPU))
    if target.profiles == frozenset(("int",)):
        to_tosa = (
            GreedyRewrites("lower-int8", (*INTEGERS, *CANCEL_CASTS)),
            GreedyRewrites("arrange", (*NOOPS, *SHAPES, *TOSA.phase("arrange"))),
            GreedyRewrites("lower", TO_TOSA),
            NamedPass("share-operators", ShareCommonSubexpressions()),
            *layouts(*LAYOUT, *FEWER_INTEGERS),
        )
        lower = LowerForNpu(target.name, to_tosa, OVER_INTEGERS)
        return Pipeline(name, (*_quantized(io), lower, *_on_cpu(target.name, cpu)))
    border = () if io is None else (IntegerPorts(io),)
    lower = LowerForNpu(target.name, BY_PROFILES[target.profiles])
    return Pipeline(name, (*border, lower, *_on_cpu(target.name, cpu)))


def _quantized(io: Io | None) -> tuple[Step, ...]:
    """Return the passes that move quantization into types and set the types at the boundary."""
    return (
        GreedyRewrites("normalize", (*CANONICAL_FORM, FoldConstants(), *SPELL_MOVES)),
        TYPE_QUANTIZATION,
        *(() if io is None else (IntegerPorts(io),)),
        NamedPass("share-types", ShareCommonSubexpressions()),
    )


def _on_cpu(
    accelerator: str,
    cpu: Target | str,
    fuse: tuple[Step, ...] = (),
    vela: VelaConfig | None = None,
) -> tuple[Step, ...]:
    """Return the partitioning: TOSA operators go into delegates, the others to the CPU."""
    target = cpu if isinstance(cpu, Target) else find_cpu(cpu)
    return (
        NamedPass("share-operators", ShareCommonSubexpressions()),
        GreedyRewrites("lower-to-cmsis", TO_CMSIS),
        ExplainFloats(),
        step(cmsis_borders.boundary),
        DecomposeForKernels(),
        GreedyRewrites("fold-constants-of-kernels", (FoldConstants(),)),
        *PLACE_LAYOUTS,
        NamedPass("share-kernels", ShareCommonSubexpressions()),
        FoldKernelSum(BiasForm.of(target)),
        NamedPass("sweep", RemoveDeadCode()),
        *fuse,
        PartitionEthosu(accelerator, vela),
        StateTarget(target, ETHOSU_LEVEL.name),
        NamedPass("sweep-again", RemoveDeadCode()),
    )
