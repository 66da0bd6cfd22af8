"""aten → xnnpack: the rewrites of each phase, in their order; `pipelines/xnnpack.py` lists the phases."""

from __future__ import annotations

import stepwell.translate.engine_losses  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.ir.rewriting.cleanup import ShareCommonSubexpressions
from stepwell.ir.rewriting.legalization import ThenLower
from stepwell.ir.rewriting.rewrite import GreedyRewrites, NamedPass
from stepwell.translate.canonicalize.pipeline import CANONICAL_FORM
from stepwell.translate.decompositions import (
    floats,
    pools,
    products,
    statistics,
)
from stepwell.translate.decompositions.conversion import ConversionTarget
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import convolutions as xnnpack_convolutions
from stepwell.translate.lowerings.xnnpack import images as xnnpack_images
from stepwell.translate.lowerings.xnnpack import products as xnnpack_products
from stepwell.translate.lowerings.xnnpack import quantized_layers as xnnpack_quantized_layers
from stepwell.translate.lowerings.xnnpack import quantized_nodes as xnnpack_quantized_nodes
from stepwell.translate.lowerings.xnnpack import reductions as xnnpack_reductions
from stepwell.translate.lowerings.xnnpack import resizing as xnnpack_resizing
from stepwell.translate.lowerings.xnnpack import rounding as xnnpack_rounding
from stepwell.translate.rewrites.attention.add_mask_to_scores import add_mask_to_scores
from stepwell.translate.rewrites.attention.attend_from_image import attend_from_image
from stepwell.translate.rewrites.attention.limit_by_mask import limit_by_mask
from stepwell.translate.rewrites.attention.recognize_attention import recognize_attention
from stepwell.translate.rewrites.attention.share_repeated_heads import ShareRepeatedHeads
from stepwell.translate.rewrites.attention.skip_masked_attention import skip_masked_attention
from stepwell.translate.rewrites.constants.fold_constants import FoldConstants
from stepwell.translate.rewrites.experts.add_up_before_experts import add_up_before_experts
from stepwell.translate.rewrites.experts.multiply_all_experts import multiply_all_experts
from stepwell.translate.rewrites.layers import sink_view_below_linear
from stepwell.translate.rewrites.layers.fold_affine_into_layer import FoldAffineIntoLayer
from stepwell.translate.rewrites.layers.fold_constant_into_layer import (
    fold_bias_into_layer,
    fold_scale_into_layer,
)
from stepwell.translate.rewrites.layers.hoist_scale_over_layout import HoistScaleOverLayout
from stepwell.translate.rewrites.layers.split_linear import SplitLinear
from stepwell.translate.rewrites.quant import CANCEL_CASTS, TYPES
from stepwell.translate.rewrites.sizes.ask_inputs_for_sizes import AskInputsForSizes
from stepwell.translate.rewrites.sizes.keep_axes_apart import keep_axes_apart
from stepwell.translate.rewrites.sizes.merge_features_first import MergeFeaturesFirst
from stepwell.translate.rewrites.sizes.part_before_permute import PartBeforePermute
from stepwell.translate.rewrites.slices import hoist_slice_over_layout
from stepwell.translate.rewrites.slices.crop_convolution import crop_convolution
from stepwell.translate.rewrites.views import merge_views, permutes
from stepwell.translate.rewrites.xnnpack.convolutions.convolve_by_rows import convolve_by_rows
from stepwell.translate.rewrites.xnnpack.convolutions.convolve_by_winograd import (
    convolve_by_winograd,
)
from stepwell.translate.rewrites.xnnpack.convolutions.keep_band import keep_band
from stepwell.translate.rewrites.xnnpack.convolutions.split_wide_depthwise import (
    split_wide_depthwise,
)
from stepwell.translate.rewrites.xnnpack.expressions import rectify_before_scale
from stepwell.translate.rewrites.xnnpack.expressions.recognize_gelu import recognize_gelu
from stepwell.translate.rewrites.xnnpack.floats import bfloats, widen_gelu
from stepwell.translate.rewrites.xnnpack.floats.cancel_narrowing import CancelNarrowing
from stepwell.translate.rewrites.xnnpack.nodes import (
    lower_clamp,
    lower_elementwise,
    lower_shape,
)
from stepwell.translate.rewrites.xnnpack.nodes.merge_linears import MergeLinears
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

TO_XNNPACK = (
    step(xnnpack_products.matmul),
    ThenLower("then-lower-nodes"),
    step(statistics.keep_large_roots),
    step(xnnpack_products.linear),
    step(xnnpack_products.linear_of_bfloats),
    step(xnnpack_convolutions.convolution),
    step(xnnpack_images.pooling),
    step(pools.average_by_convolution),
    step(xnnpack_images.nearest_resize),
    step(xnnpack_images.pixel_shuffle),
    step(xnnpack_images.crop),
    step(xnnpack_reductions.reduction),
    step(xnnpack_reductions.greatest),
    step(xnnpack_rounding.rounded),
    *(rule() for rule in lower_elementwise.RULES),
    *(rule() for rule in lower_clamp.RULES),
    *(rule() for rule in lower_shape.RULES),
    step(xnnpack_reductions.view_of_open_sizes),
)
"""One rewrite per family of operations: what XNNPACK can run. Matrix products are lowered before
the rest, because they absorb permutes."""

LOWER_BFLOATS = (
    ThenLower("then-cancel-casts"),
    CancelNarrowing(),
    ThenLower("then-lower-casts"),
    *bfloats.RULES.named("lower-bfloat-cast"),
)
"""Casts to and from bfloat16 are lowered after the rest, because those around a layer cancel."""

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

FIND_ATTENTION = (
    step(add_mask_to_scores),
    step(recognize_attention),
    *(rule() for rule in permutes.RULES),
    ShareRepeatedHeads(),
    step(skip_masked_attention),
)
"""Attention that is written as products, as one operation."""

MULTIPLY_EXPERTS = (step(multiply_all_experts), step(add_up_before_experts), FoldConstants())
"""Mixtures of experts as sums over all of them."""

ABSORB = (
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
    *TARGET.phase("absorb"),
)
"""Fold scales and shifts into layers, and merge layers."""

CHOOSE_KERNELS = (
    step(split_wide_depthwise),
    step(convolve_by_winograd),
    step(convolve_by_rows),
    *(rule() for rule in widen_gelu.RULES),
    *bfloats.RULES.named("round-in-layer"),
)
"""Forms of nodes that some kernels compute faster."""

DECOMPOSE = (
    step(recognize_gelu),
    step(limit_by_mask),
    step(keep_band),
    *TARGET.phase("decompose"),
    step(crop_convolution),
)
"""Expressions that a node computes are recognized; what XNNPACK lacks is decomposed."""
