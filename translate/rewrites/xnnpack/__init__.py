"""aten → xnnpack: lowering to XNNPACK's nodes, and expressing other ops by them."""

from __future__ import annotations

from typing import Any

from stepwell.ir.rewriting.rewrite import Rewrite
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.xnnpack.nodes.clamp_of_absolute import ClampOfAbsolute
from stepwell.translate.rewrites.xnnpack.nodes.hoist_reshape_over_linear import (
    HoistReshapeOverLinear,
)
from stepwell.translate.rewrites.xnnpack.partitioning import merge_transposes
from stepwell.translate.rewrites.xnnpack.partitioning.merge_joins import merge_joins

MERGES: tuple[Rewrite[Any], ...] = (
    *(rule() for rule in merge_transposes.RULES),
    step(merge_joins),
    ClampOfAbsolute(),
    HoistReshapeOverLinear(),
)
"""For `GreedyRewrites("merge-transposes", MERGES)`, which runs after `AssignLayouts`."""
