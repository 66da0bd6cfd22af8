"""aten → aten: every spelling of an operation brought to one normal form, for all targets."""

from __future__ import annotations

from typing import Any

from stepwell.ir.rewriting import Rewrite
from stepwell.translate.rewrites.aten.as_strided_to_view import AsStridedToView
from stepwell.translate.rewrites.aten.merge_permutes import MergePermutes
from stepwell.translate.rewrites.aten.merge_views import MergeViews
from stepwell.translate.rewrites.aten.normalise_expand import NormaliseExpand
from stepwell.translate.rewrites.aten.normalise_slice import NormaliseSlice
from stepwell.translate.rewrites.aten.pad_to_constant_pad import PadToConstantPad
from stepwell.translate.rewrites.aten.pixel_shuffle_to_permute import PixelShuffleToPermute
from stepwell.translate.rewrites.aten.remove_copy import RemoveCopy
from stepwell.translate.rewrites.aten.remove_dropout import RemoveDropout
from stepwell.translate.rewrites.aten.remove_neutral_arithmetic import RemoveNeutralArithmetic
from stepwell.translate.rewrites.aten.remove_noop_cast import RemoveNoopCast
from stepwell.translate.rewrites.aten.remove_noop_expand import RemoveNoopExpand
from stepwell.translate.rewrites.aten.remove_noop_view import RemoveNoopView
from stepwell.translate.rewrites.aten.repeat_to_expand import RepeatToExpand
from stepwell.translate.rewrites.aten.reshape_to_view import ReshapeToView
from stepwell.translate.rewrites.aten.roll_to_cat import RollToCat
from stepwell.translate.rewrites.aten.split_to_slices import SplitToSlices
from stepwell.translate.rewrites.aten.stack_to_cat import StackToCat
from stepwell.translate.rewrites.aten.transpose_to_permute import TransposeToPermute

NOOPS: tuple[Rewrite[Any], ...] = (
    RemoveNoopExpand(),
    RemoveNoopView(),
    RemoveNoopCast(),
    RemoveCopy(),
    RemoveDropout(),
    RemoveNeutralArithmetic(),
)
"""Ops that compute their operand."""

SHAPES: tuple[Rewrite[Any], ...] = (
    AsStridedToView(),
    ReshapeToView(),
    TransposeToPermute(),
    NormaliseSlice(),
    SplitToSlices(),
    StackToCat(),
    NormaliseExpand(),
    RepeatToExpand(),
    RollToCat(),
    PadToConstantPad(),
    PixelShuffleToPermute(),
    MergePermutes(),
    MergeViews(),
)
"""Ops that move elements: view, permute, slice, cat, expand and constant_pad_nd remain."""

NORMAL_FORM: tuple[Rewrite[Any], ...] = (*NOOPS, *SHAPES)
"""Every normal form, for `Together("normalise", NORMAL_FORM)`."""
