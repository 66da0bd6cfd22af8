"""Rows of which each element comes of weights of its own: they are constant by chance alone."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.ir.axes.maps import axis_map
from stepwell.translate.scale_folding.layers import layer_of

FAR = 64
"""How many values are looked at, at most."""


def are_from_weights(value: SSAValue, axes: Iterable[int]) -> bool:
    """Whether along some axis a layer's output features stand, or what was added to such.

    What a norm takes its mean over is constant where inputs are (padding, a plane of one color),
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
