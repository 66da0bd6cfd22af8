"""aten → xnnpack: what XNNPACK runs, and how the rest is written with it."""

from __future__ import annotations

from typing import Any

from stepwell.ir.rewriting import Rewrite
from stepwell.translate.rewrites.attention.attend_from_image import AttendFromImage
from stepwell.translate.rewrites.layers.sink_view_below_linear import SinkViewBelowLinear
from stepwell.translate.rewrites.sizes.keep_axes_apart import KeepAxesApart
from stepwell.translate.rewrites.views import permutes
from stepwell.translate.rewrites.views.merge_views import MergeViews
from stepwell.translate.rewrites.xnnpack.nodes.hoist_reshape_over_linear import (
    HoistReshapeOverLinear,
)
from stepwell.translate.rewrites.xnnpack.nodes.resize_by_matrices import ResizeByMatrices
from stepwell.translate.rewrites.xnnpack.placing import merge_transposes

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
