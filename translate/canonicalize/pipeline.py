"""aten → aten: canonicalize every variant of an operation, for all targets.

A pipeline runs `CANONICAL_FORM` together, then `FOLD_WEIGHTS`. The remaining ops are the input of
every target:

    view permute slice cat expand constant_pad_nd    move elements
    linear bmm convolution                           multiply
    mean.dim sum.dim_IntList amax amin (kept axes)   reduce
    one operator of each normalization, one result   normalize
    clamp mul add sub div sqrt rsqrt sigmoid …       compute an element each
"""

from __future__ import annotations

from typing import Any

from stepwell.ir.rewriting.rewrite import Rewrite
from stepwell.translate.canonicalize import (
    activations,
    clamps,
    copies,
    neutral_arithmetic,
    noops,
    normalize_embedding,
    norms,
    powers,
    sums,
)
from stepwell.translate.decompositions import activations as activation_parts
from stepwell.translate.decompositions import (
    arithmetic,
    constants,
    pools,
    products,
    promotions,
    repeated,
    selections,
    slices,
    statistics,
    views,
)
from stepwell.translate.decompositions import norms as norm_parts
from stepwell.translate.decompositions import sums as sum_parts
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.attention import row_guards
from stepwell.translate.rewrites.constants import choose_from_one
from stepwell.translate.rewrites.constants.fold_constants import FoldConstants
from stepwell.translate.rewrites.constants.lift_number_operand import LiftNumberOperand
from stepwell.translate.rewrites.layers import fold_batch_norm
from stepwell.translate.rewrites.sizes.remove_proven_assert import RemoveProvenAssert
from stepwell.translate.rewrites.slices import pads
from stepwell.translate.rewrites.slices.select_by_constant_mask import select_by_constant_mask
from stepwell.translate.rewrites.slices.store_row_in_table import StoreRowInTable
from stepwell.translate.rewrites.views import expands, merge_views, permutes, transposes

COPIES: tuple[Rewrite[Any], ...] = tuple(rule() for rule in copies.RULES)
"""Remove copies and conversions that change nothing."""

NOOPS: tuple[Rewrite[Any], ...] = (
    *(rule() for rule in choose_from_one.RULES),
    *expands.RULES.named("remove-noop-expand", "remove-noop-expand-as"),
    *(rule() for rule in noops.RULES),
    *COPIES,
    *(rule() for rule in neutral_arithmetic.RULES),
    RemoveProvenAssert(),
)
"""Remove ops that return their operand."""

SHAPES: tuple[Rewrite[Any], ...] = (
    step(views.as_strided_to_view),
    step(views.reshape_to_view),
    *(rule() for rule in transposes.RULES),
    step(slices.normalize_slice),
    step(slices.slice_whole_share),
    step(slices.normalize_selection),
    step(slices.split_to_slices),
    step(views.strided_slice_to_view),
    step(slices.stack_to_cat),
    step(views.normalize_expand),
    *expands.RULES.without("remove-noop-expand", "remove-noop-expand-as"),
    step(views.repeat_to_expand),
    step(slices.roll_to_cat),
    step(slices.index_to_slices),
    step(selections.index_by_ranges_to_view),
    step(selections.drop_true_from_and),
    *(rule() for rule in pads.RULES),
    step(slices.crop_to_slice),
    step(slices.pad_to_slices),
    step(views.pixel_shuffle_to_permute),
    step(views.fold_to_permute),
    *(rule() for rule in permutes.RULES),
    step(views.merge_permuted_axes),
    *merge_views.RULES.without("squeeze-permute"),
)
"""Ops that move elements."""

ARITHMETIC: tuple[Rewrite[Any], ...] = (
    LiftNumberOperand(),
    *(rule() for rule in sums.RULES),
    *(rule() for rule in sum_parts.RULES if not rule.phases),
    *(rule() for rule in powers.RULES),
    *(rule() for rule in clamps.RULES),
    step(arithmetic.reciprocal_to_division),
    *(rule() for rule in activations.RULES),
    *(rule() for rule in activation_parts.RULES),
)
"""Ops that compute each element."""

LAYERS: tuple[Rewrite[Any], ...] = (
    step(products.matmul_to_linear),
    step(products.matmul_to_bmm),
    step(products.linear_by_vector),
    step(products.einsum_to_bmm),
    step(products.conv_to_convolution),
    step(products.normalize_reduction),
    step(statistics.variance_to_means),
    step(statistics.divided_sum_to_mean),
    *(rule() for rule in norms.RULES),
    *norm_parts.RULES.named("rms-norm-to-means", "plain-rms-norm-to-means"),
    step(promotions.widen_mixed_norm),
    step(pools.normalize_pooling),
    step(pools.unit_pooling_to_slice),
    step(pools.adaptive_pool_to_pool),
    *(rule() for rule in normalize_embedding.RULES),
)
"""Ops that combine elements."""

CANONICAL_FORM: tuple[Rewrite[Any], ...] = (
    step(constants.give_scalar_an_axis),
    *NOOPS,
    *SHAPES,
    *ARITHMETIC,
    *LAYERS,
)
"""Every canonicalization, for `GreedyRewrites("normalize", CANONICAL_FORM)`."""

FOLD_WEIGHTS: tuple[Rewrite[Any], ...] = (
    FoldConstants(),
    step(repeated.fill_by_expand),
    step(repeated.expand_by_sizes),
    step(repeated.merge_expands),
    step(repeated.compute_before_expand),
    step(repeated.pick_before_expand),
    *expands.RULES.without("remove-noop-expand", "remove-noop-expand-as"),
    *(rule() for rule in fold_batch_norm.RULES),
    step(select_by_constant_mask),
    StoreRowInTable(),
    *(rule() for rule in row_guards.RULES),
)
"""Folding into weights, for `GreedyRewrites("fold-weights", FOLD_WEIGHTS)`."""
