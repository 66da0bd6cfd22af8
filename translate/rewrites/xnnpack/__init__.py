"""aten → xnnpack: what XNNPACK runs, and how the rest is written with it."""

from __future__ import annotations

from typing import Any

from stepwell.ir.rewriting import Rewrite
from stepwell.translate.rewrites.aten import permutes
from stepwell.translate.rewrites.aten.attend_from_image import AttendFromImage
from stepwell.translate.rewrites.aten.keep_axes_apart import KeepAxesApart
from stepwell.translate.rewrites.aten.merge_views import MergeViews
from stepwell.translate.rewrites.aten.sink_view_below_linear import SinkViewBelowLinear
from stepwell.translate.rewrites.xnnpack import merge_transposes
from stepwell.translate.rewrites.xnnpack.hoist_reshape_over_linear import HoistReshapeOverLinear
from stepwell.translate.rewrites.xnnpack.resize_by_matrices import ResizeByMatrices

MERGES: tuple[Rewrite[Any], ...] = (
    *(rule() for rule in merge_transposes.RULES),
    HoistReshapeOverLinear(),
)
"""For `Together("merge-transposes", MERGES)`, behind `AssignLayouts`."""

KEEP_IMAGES = (
    KeepAxesApart(),
    AttendFromImage(),
    SinkViewBelowLinear(),
    MergeViews(),
    *(rule() for rule in permutes.RULES),
    ResizeByMatrices(),
)
"""Height and width that are symbolic stay two axes from one convolution to the next."""
