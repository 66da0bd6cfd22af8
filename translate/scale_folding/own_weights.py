"""Rows whose elements are computed by different weights: they are constant only by chance."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.ir.axes.maps import axis_map
from stepwell.translate.scale_folding.layers import layer_of

FAR = 64
"""The most values that are visited."""


def are_from_weights(value: SSAValue, axes: Iterable[int]) -> bool:
    """Whether some axis is that of a layer's output features, or of something added to these.

    A norm's operand is constant along its axes where inputs are (padding, a plane of one color),
    but not across the outputs of a layer, each of which has its own weights.
    """
    waiting, seen = [(value, axis) for axis in axes], set[tuple[SSAValue, int]]()
    while waiting and len(seen) < FAR:
        value, axis = place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        owner = value.owner
        if not isinstance(owner, Operation):
            continue
        layer = layer_of(owner)
        if layer is not None and layer[1].channels_made(layer[0]) == axis:
            return True
        known = axis_map(owner)
        if known is None:
            continue
        for index, operand in enumerate(owner.operands):
            if isinstance(operand.type, TensorType):
                before = known.before(index, axis)
                waiting += [] if before is None else [(operand, before)]
    return False
