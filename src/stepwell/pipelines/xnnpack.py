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
    ThenLower,
)
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import GreedyRewrites, NamedPass, Step
from stepwell.translate.canonicalize.pipeline import CANONICAL_FORM, FOLD_WEIGHTS, NOOPS, SHAPES
from stepwell.translate.decompositions import (
    complex,
    constants,
    floats,
    pools,
    products,
    promotions,
    slices,
    statistics,
    views,
)
from stepwell.translate.decompositions.conversion import ConversionTarget
from stepwell.translate.decompositions.traced.recurrences import cell_function
from stepwell.translate.lowerings.lowering import is_step, step
from stepwell.translate.lowerings.xnnpack import convolutions as xnnpack_convolutions
from stepwell.translate.lowerings.xnnpack import images as xnnpack_images
from stepwell.translate.lowerings.xnnpack import products as xnnpack_products
from stepwell.translate.lowerings.xnnpack import quantized_layers as xnnpack_quantized_layers
from stepwell.translate.lowerings.xnnpack import quantized_nodes as xnnpack_quantized_nodes
from stepwell.translate.lowerings.xnnpack import reductions as xnnpack_reductions
from stepwell.translate.lowerings.xnnpack import resizing as xnnpack_resizing
from stepwell.translate.rewrites.attention.add_mask_to_scores import add_mask_to_scores
from stepwell.translate.rewrites.attention.attend_from_image import attend_from_image
from stepwell.translate.rewrites.attention.limit_by_mask import limit_by_mask
from stepwell.translate.rewrites.attention.recognize_attention import recognize_attention
from stepwell.translate.rewrites.attention.share_repeated_heads import ShareRepeatedHeads
from stepwell.translate.rewrites.attention.skip_masked_attention import skip_masked_attention
from stepwell.translate.rewrites.calls.bring_weights_inside import BringWeightsInside
from stepwell.translate.rewrites.calls.decompose_composites import DecomposeComposites
from stepwell.translate.rewrites.constants.fold_constants import FoldConstants
from stepwell.translate.rewrites.experts.add_up_before_experts import add_up_before_experts
from stepwell.translate.rewrites.experts.choose_by_rank import ChooseByRank
from stepwell.translate.rewrites.experts.multiply_all_experts import multiply_all_experts
from stepwell.translate.rewrites.layers import multiply_steps_together, sink_view_below_linear
from stepwell.translate.rewrites.layers.fold_affine_into_layer import FoldAffineIntoLayer
from stepwell.translate.rewrites.layers.fold_constant_into_layer import (
    fold_bias_into_layer,
    fold_scale_into_layer,
)
from stepwell.translate.rewrites.layers.hoist_scale_over_layout import HoistScaleOverLayout
from stepwell.translate.rewrites.layers.lift_scales_from_filter import lift_scales_from_filter
from stepwell.translate.rewrites.layers.split_linear import SplitLinear
from stepwell.translate.rewrites.norms.center_residual_stream import CenterResidualStream
from stepwell.translate.rewrites.quant import CANCEL_CASTS, TYPES
from stepwell.translate.rewrites.sizes.ask_inputs_for_sizes import AskInputsForSizes
from stepwell.translate.rewrites.sizes.keep_axes_apart import keep_axes_apart
from stepwell.translate.rewrites.sizes.merge_features_first import MergeFeaturesFirst
from stepwell.translate.rewrites.sizes.part_before_permute import PartBeforePermute
from stepwell.translate.rewrites.slices import hoist_slice_over_layout
from stepwell.translate.rewrites.slices.crop_convolution import crop_convolution
from stepwell.translate.rewrites.slices.write_by_cat import write_by_cat
from stepwell.translate.rewrites.views import expands, merge_views, permutes
from stepwell.translate.rewrites.xnnpack import MERGES
from stepwell.translate.rewrites.xnnpack.convolutions.affine_to_depthwise import AffineToDepthwise
from stepwell.translate.rewrites.xnnpack.convolutions.convolve_by_winograd import (
    convolve_by_winograd,
)
from stepwell.translate.rewrites.xnnpack.convolutions.keep_band import keep_band
from stepwell.translate.rewrites.xnnpack.convolutions.patches_to_linear import patches_to_linear
from stepwell.translate.rewrites.xnnpack.convolutions.split_depthwise import split_depthwise
from stepwell.translate.rewrites.xnnpack.convolutions.split_wide_depthwise import (
    split_wide_depthwise,
)
from stepwell.translate.rewrites.xnnpack.expressions import rectify_before_scale
from stepwell.translate.rewrites.xnnpack.expressions.pick_by_slices import pick_by_slices
from stepwell.translate.rewrites.xnnpack.expressions.recognize_gelu import recognize_gelu
from stepwell.translate.rewrites.xnnpack.floats import widen_gelu
from stepwell.translate.rewrites.xnnpack.floats.cancel_narrowing import CancelNarrowing
from stepwell.translate.rewrites.xnnpack.nodes import (
    lower_clamp,
    lower_elementwise,
    lower_shape,
)
from stepwell.translate.rewrites.xnnpack.nodes.fuse_clamp import FuseClamp
from stepwell.translate.rewrites.xnnpack.nodes.merge_linears import MergeLinears
from stepwell.translate.rewrites.xnnpack.partitioning.assign_layouts import AssignLayouts
from stepwell.translate.rewrites.xnnpack.partitioning.narrow_to_what_is_read import (
    NarrowToWhatIsRead,
)
from stepwell.translate.rewrites.xnnpack.partitioning.partition import PartitionXnnpack
from stepwell.translate.rewrites.xnnpack.partitioning.split_batch import SplitBatch
from stepwell.translate.rewrites.xnnpack.partitioning.unroll_axis import unroll_axis
from stepwell.translate.rewrites.xnnpack.quantized import leftover_casts, widen_quantized_cast

KEEP_IMAGES = (
    step(keep_axes_apart),
    PartBeforePermute(),
    MergeFeaturesFirst(),
    step(attend_from_image),
    *(rule() for rule in sink_view_below_linear.RULES),
    *merge_views.RULES.without("squeeze-permute"),
    *(rule() for rule in permutes.RULES),
    step(xnnpack_resizing.resize_by_matrices),
)
"""Rewrites that keep a symbolic height and width as two axes between convolutions."""

PLAIN_FORM = (
    *CANONICAL_FORM,
    *(rule() for rule in sink_view_below_linear.RULES),
    BringWeightsInside(),
)
"""Canonicalization of floating-point programs."""

TO_XNNPACK = (
    step(xnnpack_products.matmul),
    ThenLower("then-lower-nodes"),
    step(statistics.keep_large_roots),
    step(xnnpack_products.linear),
    step(xnnpack_convolutions.convolution),
    step(xnnpack_images.pooling),
    step(pools.average_by_convolution),
    step(xnnpack_images.nearest_resize),
    step(xnnpack_images.pixel_shuffle),
    step(xnnpack_reductions.reduction),
    step(xnnpack_reductions.greatest),
    *(rule() for rule in lower_elementwise.RULES),
    *(rule() for rule in lower_clamp.RULES),
    *(rule() for rule in lower_shape.RULES),
    step(xnnpack_reductions.view_of_open_sizes),
)
"""One rewrite per family of operations: what XNNPACK can run. Matrix products are lowered before
the rest, because they absorb permutes."""

TARGET = ConversionTarget("xnnpack", TO_XNNPACK)
CANONICAL_PARTS = (*TARGET.phase("parts"), *CANONICAL_FORM)
"""Canonicalization of the parts of decomposed operations."""

LIFT_SCALARS = TARGET.phase("scalars")
"""A node has no scalar operand: it takes a constant tensor."""

QUANTIZED = (
    GreedyRewrites("type-quantization", TYPES),
    NamedPass("share-types", ShareCommonSubexpressions()),
    GreedyRewrites(
        "lower-quantized",
        (
            step(xnnpack_quantized_layers.quantized_linear),
            step(xnnpack_quantized_layers.quantized_convolution),
            step(xnnpack_quantized_nodes.quantized_elementwise),
            step(xnnpack_quantized_nodes.quantized_movement),
            step(xnnpack_quantized_layers.dynamic_linear),
            step(xnnpack_quantized_layers.dynamic_convolution),
            *CANCEL_CASTS,
        ),
    ),
    GreedyRewrites(
        "lower-casts",
        (
            leftover_casts.FoldDequantizedConstant(),
            *(rule() for rule in leftover_casts.CONVERT),
            *(rule() for rule in widen_quantized_cast.RULES),
            *(rule() for rule in leftover_casts.UNTYPE),
            step(floats.widen_measured_range),
            step(floats.limit_before_quantization, even_if_finite=False),
            *CANCEL_CASTS,
        ),
    ),
)
"""Lowering of operations between casts to integer kernels, then of the remaining casts."""

GATHER_STRIDES = step(views.gather_strides)


def merged(label: str, change: Step) -> tuple[Step, Step]:
    """Return a pass that changes layouts, and the merges of the adjacent ones that it leaves."""
    return change, GreedyRewrites(label, MERGES)


XNNPACK = Pipeline(
    "xnnpack",
    (
        GreedyRewrites(
            "normalize",
            (
                *TARGET.phase("normalize"),
                *PLAIN_FORM,
                DecomposeComposites(function_of=cell_function),
                *(rule() for rule in multiply_steps_together.RULES),
                step(write_by_cat),
                GATHER_STRIDES,
                step(complex.complex_to_pairs),
            ),
        ),
        GreedyRewrites(
            "widen-floats",
            (step(promotions.widen_mixed_floats), step(floats.widen_bfloat), CancelNarrowing()),
        ),
        *QUANTIZED,
        GreedyRewrites("fold-weights", (*FOLD_WEIGHTS, step(lift_scales_from_filter))),
        GreedyRewrites(
            "multiply-experts",
            (step(multiply_all_experts), step(add_up_before_experts), FoldConstants()),
        ),
        ChooseByRank(),
        GreedyRewrites(
            "find-attention",
            (
                step(add_mask_to_scores),
                step(recognize_attention),
                *(rule() for rule in permutes.RULES),
                ShareRepeatedHeads(),
                step(skip_masked_attention),
            ),
        ),
        GreedyRewrites("keep-images", KEEP_IMAGES),
        GreedyRewrites("attention-to-products", TARGET.phase("attention")),
        GreedyRewrites("ask-inputs", (AskInputsForSizes(),)),
        CenterResidualStream(),
        GreedyRewrites(
            "decompose",
            (
                step(recognize_gelu),
                step(limit_by_mask),
                step(keep_band),
                *TARGET.phase("decompose"),
                step(crop_convolution),
            ),
        ),
        GreedyRewrites("normalize-parts", CANONICAL_PARTS),
        NamedPass("share-parts", ShareCommonSubexpressions()),
        GreedyRewrites(
            "absorb",
            (
                step(products.unmerge_batch),
                AskInputsForSizes(),
                *(rule() for rule in hoist_slice_over_layout.RULES),
                SplitLinear(),
                FoldAffineIntoLayer(),
                *(rule() for rule in rectify_before_scale.RULES),
                HoistScaleOverLayout(),
                step(fold_scale_into_layer),
                step(fold_bias_into_layer),
                MergeLinears(),
            ),
        ),
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
                ThenDecompose(),
                step(unroll_axis),
                step(slices.split_to_slices),
                DecomposeForKernels(),
                ThenDecompose("then-pick"),
                step(pick_by_slices),
                ThenCanonicalize(),
                FoldConstants(),
                step(floats.widen_bfloat),
                CancelNarrowing(),
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
        GreedyRewrites(
            "choose-kernels",
            (
                step(split_wide_depthwise),
                step(convolve_by_winograd),
                *(rule() for rule in widen_gelu.RULES),
            ),
        ),
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
