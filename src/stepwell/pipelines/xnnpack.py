"""The pass pipeline to XNNPACK: one literal tuple.

The pipelines of the other targets are in `arm.py` and `npu.py`.
"""

from __future__ import annotations

import stepwell.translate.engine_losses  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.backends.executorch.decompose import DecomposeForKernels
from stepwell.ir.rewriting.cleanup import RemoveDeadCode, ShareCommonSubexpressions
from stepwell.ir.rewriting.legalization import (
    Legalize,
    ThenCanonicalize,
    ThenDecompose,
)
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import GreedyRewrites, NamedPass, Step
from stepwell.translate.canonicalize.pipeline import (
    CANONICAL_FORM,
    COPIES,
    FOLD_WEIGHTS,
    NOOPS,
    SHAPES,
)
from stepwell.translate.decompositions import (
    constants,
    floats,
    promotions,
    slices,
    views,
)
from stepwell.translate.decompositions.traced.recurrences import cell_function
from stepwell.translate.lowerings.lowering import is_step, step
from stepwell.translate.rewrites.calls.bring_weights_inside import BringWeightsInside
from stepwell.translate.rewrites.calls.decompose_composites import DecomposeComposites
from stepwell.translate.rewrites.calls.loop_recurrence import LoopRecurrence
from stepwell.translate.rewrites.constants.fold_constants import FoldConstants
from stepwell.translate.rewrites.experts.choose_by_rank import ChooseByRank
from stepwell.translate.rewrites.layers import multiply_steps_together, sink_view_below_linear
from stepwell.translate.rewrites.layers.lift_scales_from_filter import lift_scales_from_filter
from stepwell.translate.rewrites.norms.center_residual_stream import CenterResidualStream
from stepwell.translate.rewrites.sizes.ask_inputs_for_sizes import AskInputsForSizes
from stepwell.translate.rewrites.views import expands, merge_views
from stepwell.translate.rewrites.xnnpack import MERGES
from stepwell.translate.rewrites.xnnpack.convolutions.affine_to_depthwise import AffineToDepthwise
from stepwell.translate.rewrites.xnnpack.convolutions.patches_to_linear import patches_to_linear
from stepwell.translate.rewrites.xnnpack.convolutions.split_depthwise import split_depthwise
from stepwell.translate.rewrites.xnnpack.expressions.pick_by_slices import pick_by_slices
from stepwell.translate.rewrites.xnnpack.floats.cancel_narrowing import CancelNarrowing
from stepwell.translate.rewrites.xnnpack.nodes.fuse_clamp import FuseClamp
from stepwell.translate.rewrites.xnnpack.order import (
    ABSORB,
    CANONICAL_PARTS,
    CHOOSE_KERNELS,
    DECOMPOSE,
    FIND_ATTENTION,
    KEEP_IMAGES,
    LIFT_SCALARS,
    LOWER_BFLOATS,
    MULTIPLY_EXPERTS,
    QUANTIZED,
    TARGET,
    TO_XNNPACK,
)
from stepwell.translate.rewrites.xnnpack.partitioning.assign_layouts import AssignLayouts
from stepwell.translate.rewrites.xnnpack.partitioning.narrow_to_what_is_read import (
    NarrowToWhatIsRead,
)
from stepwell.translate.rewrites.xnnpack.partitioning.partition import PartitionXnnpack
from stepwell.translate.rewrites.xnnpack.partitioning.split_batch import SplitBatch
from stepwell.translate.rewrites.xnnpack.partitioning.unroll_axis import unroll_axis

PLAIN_FORM = (
    *CANONICAL_FORM,
    *(rule() for rule in sink_view_below_linear.RULES),
    BringWeightsInside(),
)
"""Canonicalization of floating-point programs."""

GATHER_STRIDES = step(views.gather_strides)


def merged(label: str, change: Step) -> tuple[Step, Step]:
    """Return a pass that changes layouts, together with the rules that merge adjacent layout
    ops.
    """
    return change, GreedyRewrites(label, MERGES)


XNNPACK = Pipeline(
    "xnnpack",
    (
        GreedyRewrites("transforms", (*COPIES, *TARGET.phase("transforms"))),
        GreedyRewrites(
            "normalize",
            (
                *TARGET.phase("normalize"),
                *PLAIN_FORM,
                LoopRecurrence(),
                DecomposeComposites(function_of=cell_function),
                *(rule() for rule in multiply_steps_together.RULES),
                GATHER_STRIDES,
            ),
        ),
        GreedyRewrites(
            "widen-floats",
            (step(promotions.widen_mixed_floats), step(floats.widen_bfloat), CancelNarrowing()),
        ),
        *QUANTIZED,
        GreedyRewrites("fold-weights", (*FOLD_WEIGHTS, step(lift_scales_from_filter))),
        GreedyRewrites("multiply-experts", MULTIPLY_EXPERTS),
        ChooseByRank(),
        GreedyRewrites("find-attention", FIND_ATTENTION),
        GreedyRewrites("keep-images", KEEP_IMAGES),
        GreedyRewrites("attention-to-products", TARGET.phase("attention")),
        GreedyRewrites("ask-inputs", (AskInputsForSizes(),)),
        CenterResidualStream(),
        GreedyRewrites("decompose", DECOMPOSE),
        GreedyRewrites("normalize-parts", CANONICAL_PARTS),
        NamedPass("share-parts", ShareCommonSubexpressions()),
        GreedyRewrites("absorb", ABSORB),
        GreedyRewrites(
            "arrange",
            (
                *NOOPS,
                *SHAPES,
                *merge_views.RULES.named("squeeze-permute"),
                step(floats.widen_products_of_halves),
                *LIFT_SCALARS,
            ),
        ),
        Legalize(
            "legalize",
            (
                *TO_XNNPACK,
                *LIFT_SCALARS,
                *LOWER_BFLOATS,
                ThenDecompose(),
                step(unroll_axis),
                step(slices.split_to_slices),
                DecomposeForKernels(),
                ThenDecompose("then-pick"),
                step(pick_by_slices),
                ThenCanonicalize(),
                FoldConstants(),
                step(floats.widen_bfloat),
                # Splits become slices above, before PyTorch's decomposition gives them strides.
                *(r for r in CANONICAL_PARTS if not is_step(r, slices.split_to_slices)),
            ),
        ),
        NamedPass("share-nodes", ShareCommonSubexpressions()),
        NarrowToWhatIsRead(),
        *merged("merge-layouts", NamedPass("assign-layouts-first", AssignLayouts())),
        *merged("merge-layouts-again", NamedPass("assign-layouts-again", AssignLayouts())),
        *merged("merge-layouts-of-patches", step(patches_to_linear)),
        GreedyRewrites("affine-by-channels", (AffineToDepthwise(), step(split_depthwise))),
        FuseClamp(),
        SplitBatch(),
        GreedyRewrites("choose-kernels", CHOOSE_KERNELS),
        PartitionXnnpack(),
        RemoveDeadCode(),
    ),
)
"""The optimizations: every pass that makes the result faster."""

XNNPACK_PUBLISHED = Pipeline(
    "xnnpack-published",
    (
        GreedyRewrites("take-apart", (DecomposeForKernels(),)),
        GreedyRewrites(
            "remove-noop-expands",
            expands.RULES.named("remove-noop-expand", "remove-noop-expand-as"),
        ),
        GreedyRewrites(
            "lift-scalars", (step(constants.lift_constant_scalar, protect_attention=False),)
        ),
        GreedyRewrites("normalize", (*CANONICAL_FORM, GATHER_STRIDES)),
        Legalize("legalize", TO_XNNPACK),
        GreedyRewrites("leave-to-kernels", (DecomposeForKernels(),)),
        PartitionXnnpack(),
        RemoveDeadCode(),
    ),
)
"""The upstream change alone (executorch #20515): scalar lifting and removal of no-op expands.

It follows the decomposition that the stock flow begins with, which also decomposes attention.
Canonicalization only produces the forms that the lowering matches. Normalizations and guards of
attention stay outside the delegate, as in the stock flow.
"""
