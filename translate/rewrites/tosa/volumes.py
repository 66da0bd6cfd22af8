"""Convolutions of three axes: CONV3D in NDHWC, one a group, whatever its elements are."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import i32
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.building import Builder, narrow, shape_of
from stepwell.translate.rewrites.tosa.convolving import Convolve, Placed, part

TO_NDHWC, TO_NCDHW = (0, 2, 3, 4, 1), (0, 4, 1, 2, 3)


def convolved_volume(
    op: SchemaOp, x: SSAValue, weight: SSAValue, convolve: Convolve, b: Builder
) -> SSAValue:
    """The result of a `convolution` of an NCDHW volume by an OIDHW weight, in NCDHW.

    Args:
        x: its volume, as the operators take it.
        weight: its weight in torch's order.
        convolve: writes one operator.
    """
    image, kernel = (b.transpose(value, TO_NDHWC) for value in (x, weight))
    n, out, *spatial = shape_of(op.results[0])
    stride, dilation = list(op.arg("stride")), list(op.arg("dilation"))
    pad: list[int] = []
    for axis, before in enumerate(op.arg("padding"), 1):
        span = (shape_of(kernel)[axis] - 1) * dilation[axis - 1] + 1
        behind = (spatial[axis - 1] - 1) * stride[axis - 1] + span - shape_of(image)[axis] - before
        if behind < 0:  # what no window reaches: TOSA has no negative padding
            image = narrow(image, axis, 0, shape_of(image)[axis] + behind, b)
        pad += [before, max(behind, 0)]
    lists = {"pad": pad, "stride": stride, "dilation": dilation}
    groups = op.arg("groups")
    shape = (n, *spatial, out // groups)
    parts: list[SSAValue] = []
    for group in range(groups):
        operands = part(image, 4, group, groups, b), part(kernel, 0, group, groups, b)
        parts.append(convolve(Placed(t.Conv3dOp, *operands, shape, lists, group)))
    y = parts[0]
    if groups > 1:
        axis = IntegerAttr(4, i32)
        y = b.op(t.ConcatOp, parts, (n, *spatial, out), element(y.type), axis=axis)
    return b.transpose(y, TO_NCDHW)
