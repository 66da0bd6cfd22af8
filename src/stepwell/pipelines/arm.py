"""The pass pipelines for Arm devices: TOSA, and CMSIS-NN on a Cortex-M.

The pipeline for XNNPACK is in `xnnpack.py`, and those for a CPU with an accelerator are in
`npu.py`, so lowering to one target does not import the passes of the others.
"""

from __future__ import annotations

from stepwell.backends.cortex_m.plan_memory import PlanMemory
from stepwell.backends.executorch.decompose import DecomposeForKernels
from stepwell.dialects.cmsis.target import Target
from stepwell.dialects.cmsis.target import target as find_cpu
from stepwell.dialects.tosa.targets import parse_target
from stepwell.ir.rewriting.cleanup import RemoveDeadCode, ShareCommonSubexpressions
from stepwell.ir.rewriting.legalization import Legalize, ThenCanonicalize, ThenDecompose
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import GreedyRewrites, NamedPass, Step
from stepwell.pipelines.xnnpack import GATHER_STRIDES, PLAIN_FORM
from stepwell.translate.canonicalize import fills
from stepwell.translate.canonicalize.pipeline import (
    CANONICAL_FORM,
    COPIES,
    FOLD_WEIGHTS,
    NOOPS,
    SHAPES,
)
from stepwell.translate.decompositions import executorch_mx, pools
from stepwell.translate.lowerings.cmsis import borders as cmsis_borders
from stepwell.translate.lowerings.cmsis.order import TO_CMSIS
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.tosa import borders
from stepwell.translate.memory import MEMORY, SPEED
from stepwell.translate.rewrites.attention.fold_scale_into_projection import FoldScaleIntoProjection
from stepwell.translate.rewrites.attention.recognize_attention import recognize_attention
from stepwell.translate.rewrites.calls.bring_weights_inside import BringWeightsInside
from stepwell.translate.rewrites.calls.decompose_composites import DecomposeComposites
from stepwell.translate.rewrites.calls.unroll_loop import UnrollLoop
from stepwell.translate.rewrites.cmsis import (
    MERGE_TRANSPOSES,
    MERGE_VIEWS,
    NAME_PARTS,
    RELABEL_PORTS,
    AbsorbFlatten,
    AbsorbPad,
    BiasForm,
    ChannelsLastPorts,
    ExplainFloats,
    FoldKernelSum,
    IntegerPorts,
    Io,
    OrderOperators,
    PadAfterView,
    SplitProjection,
    StateTarget,
    TurnRow,
)
from stepwell.translate.rewrites.cmsis import AssignLayouts as CmsisLayouts
from stepwell.translate.rewrites.cmsis.layout.channels_last_ports import AS_EXPORTED, CHANNELS_LAST
from stepwell.translate.rewrites.cmsis.layout.lower_permute import LowerPermute, PermuteToView
from stepwell.translate.rewrites.constants.fold_constants import FoldConstants
from stepwell.translate.rewrites.constants.lift_number_operand import LiftNumberOperand
from stepwell.translate.rewrites.layers.fold_affine_into_layer import FoldAffineIntoLayer
from stepwell.translate.rewrites.layers.fold_constant_into_layer import (
    fold_bias_into_layer,
    fold_scale_into_layer,
)
from stepwell.translate.rewrites.layers.hoist_scale_over_layout import HoistScaleOverLayout
from stepwell.translate.rewrites.mxfp.choose_mx_form import ChooseMxForm
from stepwell.translate.rewrites.quant import CANCEL_CASTS, TYPE_QUANTIZATION
from stepwell.translate.rewrites.tosa.layout.order import (
    DECOMPOSE,
    FEWER_INTEGERS,
    INTEGERS,
    LAYOUT,
    TO_TOSA,
    TOSA,
    each,
    layouts,
)
from stepwell.translate.rewrites.tosa.legalize_boundary.count_in_floats import CountInFloats
from stepwell.translate.rewrites.tosa.legalize_boundary.finish import FinishTosa
from stepwell.translate.rewrites.tosa.legalize_boundary.narrow_indices import NarrowIndices
from stepwell.translate.rewrites.tosa.legalize_boundary.strip_boundary import StripBoundary
from stepwell.translate.rewrites.tosa.operators.lower_control import LowerControl
from stepwell.translate.rewrites.tosa.operators.lower_custom import LowerCustom
from stepwell.translate.rewrites.tosa.splitting import gather_truths
from stepwell.translate.rewrites.tosa.splitting.decompose_rest import DecomposeRest
from stepwell.translate.rewrites.xnnpack.quantized.leftover_casts import FoldDequantizedConstant

FLOATS = (
    LowerCustom(),
    GreedyRewrites("transforms", (*COPIES, *TOSA.phase("transforms"))),
    GreedyRewrites("normalize", (*PLAIN_FORM, GATHER_STRIDES)),
    GreedyRewrites("fold-weights", FOLD_WEIGHTS),
    step(recognize_attention),
    GreedyRewrites("attention-to-products", TOSA.phase("attention")),
    GreedyRewrites("split", DECOMPOSE),
    GreedyRewrites("normalize-parts", CANONICAL_FORM),
    NamedPass("share-parts", ShareCommonSubexpressions()),
    GreedyRewrites(
        "absorb",
        (
            FoldScaleIntoProjection(),
            HoistScaleOverLayout(),
            FoldAffineIntoLayer(),
            step(fold_scale_into_layer),
            step(fold_bias_into_layer),
            *TOSA.phase("absorb"),
        ),
    ),
    GreedyRewrites("arrange", (*NOOPS, *SHAPES)),
    Legalize(
        "legalize",
        (
            *TO_TOSA,
            ThenDecompose(),
            DecomposeComposites(),
            ThenDecompose("then-decompose-rest"),
            DecomposeRest(),
            ThenCanonicalize("then-guard"),
            *TOSA.phase("parts"),
            ThenCanonicalize(),
            FoldConstants(),
            *CANONICAL_FORM,
            *DECOMPOSE,
        ),
    ),
    NamedPass("share-operators", ShareCommonSubexpressions()),
    LowerControl(),
    *layouts(*LAYOUT),
    NamedPass("share-layouts", ShareCommonSubexpressions()),
)
"""The passes of every TOSA target. The target's name selects the profiles and extensions."""


SPELL_MOVES = (
    *(rule() for rule in fills.RULES),
    step(pools.pool_by_images, only_image_maxima=False),
    GATHER_STRIDES,
)
"""Fills, copies, strides and pools as ops that quantized types pass through."""


TOSA_INTEGERS = (
    LowerCustom(),
    GreedyRewrites("normalize", (*CANONICAL_FORM, FoldConstants(), *SPELL_MOVES)),
    TYPE_QUANTIZATION,
    NamedPass("share-types", ShareCommonSubexpressions()),
    StripBoundary(),
    GreedyRewrites("lower-int8", (*INTEGERS, *CANCEL_CASTS)),
    GreedyRewrites("arrange", (*NOOPS, *SHAPES, *TOSA.phase("arrange"))),
    GreedyRewrites("lower", TO_TOSA),
    NamedPass("share-operators", ShareCommonSubexpressions()),
    *layouts(*LAYOUT, *FEWER_INTEGERS),
    NamedPass("share-layouts", ShareCommonSubexpressions()),
)
"""The passes of an integer-only target. The program must be quantized."""


TOSA_MIXED = (
    GreedyRewrites(
        "normalize-quantized",
        (*CANONICAL_FORM, FoldConstants(), BringWeightsInside(), *SPELL_MOVES),
    ),
    TYPE_QUANTIZATION,
    NamedPass("share-types", ShareCommonSubexpressions()),
    GreedyRewrites("lower-int8", (*INTEGERS, *CANCEL_CASTS)),
    GreedyRewrites(
        "lower-casts",
        (FoldDequantizedConstant(), *each(borders), *CANCEL_CASTS),
    ),
    GreedyRewrites("fewer-integers", FEWER_INTEGERS),
    *FLOATS,
)
"""The passes of a target with both profiles: quantized layers in integers, others in floats."""


BY_PROFILES: dict[frozenset[str], tuple[Step, ...]] = {
    frozenset(("fp",)): FLOATS,
    frozenset(("int",)): TOSA_INTEGERS,
    frozenset(("fp", "int")): TOSA_MIXED,
}


def tosa_pipeline(target: str) -> Pipeline:
    """Return the pipeline of a target such as `tosa-1.1+fp`; an unknown one is an error."""
    found = parse_target(target)
    steps = BY_PROFILES[found.profiles]
    block_scaled = (step(executorch_mx.adopt_executorch_mx), ChooseMxForm(found.extensions))
    is_older = found.version == "1.0" and "int" in found.profiles
    older = tuple(rule() for rule in gather_truths.RULES) if is_older else ()
    finish = (
        *older,
        NamedPass("sweep", RemoveDeadCode()),
        NarrowIndices(target),
        CountInFloats(target),
        FinishTosa(target),
        NamedPass("sweep-again", RemoveDeadCode()),
    )
    return Pipeline(target, (*block_scaled, UnrollLoop(), *steps, *finish))


MEETING = (*CANCEL_CASTS, *MERGE_TRANSPOSES, *RELABEL_PORTS, *MERGE_VIEWS)
PLACE_LAYOUTS = (
    GreedyRewrites("lower-layouts", (*MEETING, LowerPermute())),
    CmsisLayouts(),
    GreedyRewrites("merge-layouts", (*MEETING, PadAfterView(), AbsorbPad())),
    GreedyRewrites("turn-rows", (TurnRow(), *MERGE_VIEWS)),
    AbsorbFlatten(),
)
"""Layout assignment: a minimum cut places the layout changes, which are then merged.

Those that remain become copies; other data movement becomes views.
"""


def cortex_m_pipeline(
    cpu: Target | str,
    bias_form: str | None = None,
    io: Io | None = None,
    optimize: str = SPEED,
    arena: int | None = None,
    io_layout: str = AS_EXPORTED,
) -> Pipeline:
    """Return the pipeline for a Cortex-M CPU.

    Args:
        cpu: `cortex-m55`, `cortex-m4`, …, or `cortex-m55+dsp`.
        bias_form: `bias`, `kernel-sum`, `both` or `run-time`; the CPU's own if None.
        io: the element type of float inputs and outputs, `int8` or `int16`, for all or by name.
        optimize: `memory` runs image ops row by row where that saves more memory than it costs.
        arena: the bytes available for activations; implies the memory optimizations needed.
        io_layout: `channels last` takes and returns images channels last if they would otherwise
            be transposed at the boundary. This saves the copy, but the layout of the caller's
            bytes differs from the exported model's.
    """
    target = cpu if isinstance(cpu, Target) else find_cpu(cpu)
    form = BiasForm.of(target) if bias_form is None else BiasForm(bias_form)
    return Pipeline(
        str(target),
        (
            GATHER_STRIDES,
            TYPE_QUANTIZATION,
            *(() if io is None else (IntegerPorts(io),)),
            NamedPass("share-types", ShareCommonSubexpressions()),
            GreedyRewrites("lower-to-cmsis", TO_CMSIS),
            ExplainFloats(),
            step(cmsis_borders.boundary),
            LiftNumberOperand(),
            DecomposeForKernels(),
            FoldConstants(),
            GreedyRewrites("split-projections", (SplitProjection(), PermuteToView())),
            *((ChannelsLastPorts(),) if io_layout == CHANNELS_LAST else ()),
            *PLACE_LAYOUTS,
            NamedPass("share-kernels", ShareCommonSubexpressions()),
            FoldKernelSum(form),
            StateTarget(target),
            RemoveDeadCode(),
            OrderOperators(),
            *((PlanMemory(arena),) if optimize == MEMORY or arena is not None else ()),
            GreedyRewrites("slices-as-parts", NAME_PARTS),
            GreedyRewrites("parts-as-they-are", CANCEL_CASTS),
        ),
    )
