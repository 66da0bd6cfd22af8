"""aten → xnnpack: lowering to XNNPACK's nodes, and expressing other ops by them."""

from __future__ import annotations

from typing import Any

from stepwell.ir.rewriting.rewrite import Rewrite
from stepwell.translate.rewrites.xnnpack.nodes.hoist_reshape_over_linear import (
    HoistReshapeOverLinear,
)
from stepwell.translate.rewrites.xnnpack.partitioning import merge_parts, merge_transposes

MERGES: tuple[Rewrite[Any], ...] = (
    *(rule() for rule in merge_transposes.RULES),
    *merge_parts.MERGES,
    HoistReshapeOverLinear(),
)
"""For `GreedyRewrites("merge-transposes", MERGES)`, which runs after `AssignLayouts`."""
