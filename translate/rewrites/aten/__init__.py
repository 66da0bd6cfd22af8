"""aten → aten: every spelling of an operation brought to one normal form, for all targets.

A pipeline runs `NORMAL_FORM` together, then `FOLD_WEIGHTS`. What remains is read by every target:

    view permute slice cat expand constant_pad_nd    move elements
    linear bmm convolution                           multiply
    mean.dim sum.dim_IntList amax amin (kept axes)   reduce
    _softmax layer_norm group_norm batch_norm        normalise
    clamp mul add sub div sqrt rsqrt sigmoid …       compute an element each
"""

from __future__ import annotations

from typing import Any

from stepwell.ir.rewriting import Rewrite
from stepwell.translate.rewrites.aten import (
    activations,
    clamps,
    copies,
    expands,
    neutral_arithmetic,
    noops,
    normalise_embedding,
    norms,
    permutes,
    powers,
    softmaxes,
    sums,
    transposes,
)
from stepwell.translate.rewrites.aten.adaptive_pool_to_pool import AdaptivePoolToPool
from stepwell.translate.rewrites.aten.as_strided_to_view import AsStridedToView
from stepwell.translate.rewrites.aten.choose_from_one import ChooseFromOne
from stepwell.translate.rewrites.aten.conv_to_convolution import ConvToConvolution
from stepwell.translate.rewrites.aten.crop_to_slice import CropToSlice
from stepwell.translate.rewrites.aten.einsum_to_bmm import EinsumToBmm
from stepwell.translate.rewrites.aten.fold_batch_norm import FoldBatchNorm
from stepwell.translate.rewrites.aten.fold_constants import FoldConstants
from stepwell.translate.rewrites.aten.give_scalar_an_axis import GiveScalarAnAxis
from stepwell.translate.rewrites.aten.index_to_slices import IndexToSlices
from stepwell.translate.rewrites.aten.lift_number_operand import LiftNumberOperand
from stepwell.translate.rewrites.aten.matmul_to_bmm import MatmulToBmm
from stepwell.translate.rewrites.aten.matmul_to_linear import MatmulToLinear
from stepwell.translate.rewrites.aten.merge_permuted_axes import MergePermutedAxes
from stepwell.translate.rewrites.aten.merge_views import MergeViews
from stepwell.translate.rewrites.aten.normalise_expand import NormaliseExpand
from stepwell.translate.rewrites.aten.normalise_pooling import NormalisePooling
from stepwell.translate.rewrites.aten.normalise_reduction import NormaliseReduction
from stepwell.translate.rewrites.aten.normalise_slice import NormaliseSlice
from stepwell.translate.rewrites.aten.pad_to_constant_pad import PadToConstantPad
from stepwell.translate.rewrites.aten.pad_to_slices import PadToSlices
from stepwell.translate.rewrites.aten.pixel_shuffle_to_permute import PixelShuffleToPermute
from stepwell.translate.rewrites.aten.reciprocal_to_division import ReciprocalToDivision
from stepwell.translate.rewrites.aten.remove_proven_assert import RemoveProvenAssert
from stepwell.translate.rewrites.aten.remove_safe_softmax_guard import RemoveSafeSoftmaxGuard
from stepwell.translate.rewrites.aten.repeat_to_expand import RepeatToExpand
from stepwell.translate.rewrites.aten.reshape_to_view import ReshapeToView
from stepwell.translate.rewrites.aten.roll_to_cat import RollToCat
from stepwell.translate.rewrites.aten.select_by_constant_mask import SelectByConstantMask
from stepwell.translate.rewrites.aten.split_to_slices import SplitToSlices
from stepwell.translate.rewrites.aten.stack_to_cat import StackToCat
from stepwell.translate.rewrites.aten.store_row_in_table import StoreRowInTable
from stepwell.translate.rewrites.aten.strided_slice_to_view import StridedSliceToView
from stepwell.translate.rewrites.aten.unit_pooling_to_slice import UnitPoolingToSlice
from stepwell.translate.rewrites.aten.variance_to_means import VarianceToMeans
from stepwell.translate.rewrites.aten.widen_mixed_norm import WidenMixedNorm

NOOPS: tuple[Rewrite[Any], ...] = (
    ChooseFromOne(),
    *(rule() for rule in expands.RULES),
    *(rule() for rule in noops.RULES),
    *(rule() for rule in copies.RULES),
    *(rule() for rule in neutral_arithmetic.RULES),
    RemoveProvenAssert(),
)
"""Ops that compute their operand."""

SHAPES: tuple[Rewrite[Any], ...] = (
    AsStridedToView(),
    ReshapeToView(),
    *(rule() for rule in transposes.RULES),
    NormaliseSlice(),
    SplitToSlices(),
    StridedSliceToView(),
    StackToCat(),
    NormaliseExpand(),
    RepeatToExpand(),
    RollToCat(),
    IndexToSlices(),
    PadToConstantPad(),
    CropToSlice(),
    PadToSlices(),
    PixelShuffleToPermute(),
    *(rule() for rule in permutes.RULES),
    MergePermutedAxes(),
    MergeViews(),
)
"""Ops that move elements."""

ARITHMETIC: tuple[Rewrite[Any], ...] = (
    LiftNumberOperand(),
    *(rule() for rule in sums.RULES),
    *(rule() for rule in powers.RULES),
    *(rule() for rule in clamps.RULES),
    ReciprocalToDivision(),
    *(rule() for rule in activations.RULES),
)
"""Ops that compute each element."""

LAYERS: tuple[Rewrite[Any], ...] = (
    MatmulToLinear(),
    MatmulToBmm(),
    EinsumToBmm(),
    ConvToConvolution(),
    NormaliseReduction(),
    VarianceToMeans(),
    *(rule() for rule in softmaxes.RULES),
    *(rule() for rule in norms.RULES),
    WidenMixedNorm(),
    NormalisePooling(),
    UnitPoolingToSlice(),
    AdaptivePoolToPool(),
    *(rule() for rule in normalise_embedding.RULES),
)
"""Ops that combine elements."""

NORMAL_FORM: tuple[Rewrite[Any], ...] = (GiveScalarAnAxis(), *NOOPS, *SHAPES, *ARITHMETIC, *LAYERS)
"""Every normal form, for `Together("normalise", NORMAL_FORM)`."""

FOLD_WEIGHTS: tuple[Rewrite[Any], ...] = (
    FoldConstants(),
    FoldBatchNorm(),
    SelectByConstantMask(),
    StoreRowInTable(),
    RemoveSafeSoftmaxGuard(),
)
"""What weights decide at compile time, for `Together("fold-weights", FOLD_WEIGHTS)`."""
