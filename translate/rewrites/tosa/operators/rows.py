"""GATHER along one axis by constant indices."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from xdsl.ir import SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import i32
from stepwell.ir.types import element
from stepwell.translate.rewrites.slices.moved_places import MOST_PLACES
from stepwell.translate.rewrites.tosa.operators.building import Builder, elements, narrow, shape_of


def gathered(x: SSAValue, axis: int, indices: Sequence[int], b: Builder) -> SSAValue:
    """Gather elements of one axis by constant indices; slice them where consecutive."""
    shape = list(shape_of(x))
    first = indices[0]
    if list(indices) == list(range(first, first + len(indices))):
        return narrow(x, axis, first, len(indices), b)
    batch, channels = elements(shape[:axis]), elements(shape[axis + 1 :])
    rows, tiled = torch.tensor(indices, dtype=torch.int32).reshape(1, -1), (batch, len(indices))
    if isinstance(batch, int) and batch * len(indices) <= MOST_PLACES:
        index = b.constant(rows.expand(tiled))
    else:
        index = b.op(t.TileOp, [b.constant(rows), b.sizes((batch, 1))], tiled, i32)
    values = b.reshape(x, (batch, shape[axis], channels))
    y = b.op(t.GatherOp, [values, index], (batch, len(indices), channels), element(x.type))
    return b.reshape(y, (*shape[:axis], len(indices), *shape[axis + 1 :]))
