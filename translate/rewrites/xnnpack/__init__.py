"""aten → xnnpack: what XNNPACK runs, and how the rest is written with it."""

from __future__ import annotations

from typing import Any

from stepwell.ir.rewriting import Rewrite
from stepwell.translate.rewrites.xnnpack.hoist_reshape_over_linear import HoistReshapeOverLinear
from stepwell.translate.rewrites.xnnpack.merge_transposes import (
    DropAveragedAxes,
    MergeReshapes,
    MergeTransposes,
)

MERGES: tuple[Rewrite[Any], ...] = (
    MergeTransposes(),
    MergeReshapes(),
    HoistReshapeOverLinear(),
    DropAveragedAxes(),
)
"""For `Together("merge-transposes", MERGES)`, behind `AssignLayouts`."""
