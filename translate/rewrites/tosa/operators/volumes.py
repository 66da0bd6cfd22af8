"""Convolutions of three axes: CONV3D in NDHWC, one per group, for any element type."""

from __future__ import annotations

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.sizes.size import Dim, settled
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of
from stepwell.translate.rewrites.tosa.operators.convolving import Convolve, Placed, evened, part

TO_NDHWC, TO_NCDHW = (0, 2, 3, 4, 1), (0, 4, 1, 2, 3)


def convolved_volume(
    op: SchemaOp, x: SSAValue, weight: SSAValue, convolve: Convolve, b: Builder, fill: float = 0.0
) -> SSAValue:
    """Build the result of a `convolution` of an NCDHW volume by an OIDHW weight, in NCDHW.

    Args:
        x: its volume, as the operators take it.
        weight: its weight in torch's order.
        convolve: builds one operator.
        fill: the padding value.
    """
    image, kernel = (b.transpose(value, TO_NDHWC) for value in (x, weight))
    n, out, *spatial = shape_of(op.results[0])
    stride, dilation = list(op.arg("stride")), list(op.arg("dilation"))
    behind: list[Dim] = []
    for axis, before in enumerate(op.arg("padding")):
        span = (shape_of(kernel)[axis + 1] - 1) * dilation[axis] + 1
        last = (spatial[axis] - 1) * stride[axis]
        behind.append(settled(last + span - shape_of(image)[axis + 1] - before))
    image, left = evened(image, behind, op.arg("padding"), b, fill)
    pad = [size for pair in zip(op.arg("padding"), left, strict=True) for size in pair]
    lists = {"pad": pad, "stride": stride, "dilation": dilation}
    groups = op.arg("groups")
    shape = (n, *spatial, out // groups)
    parts: list[SSAValue] = []
    for group in range(groups):
        operands = part(image, 4, group, groups, b), part(kernel, 0, group, groups, b)
        parts.append(convolve(Placed(t.Conv3dOp, *operands, shape, lists, group)))
    y = parts[0] if groups == 1 else b.concat(parts, 4)
    return b.transpose(y, TO_NCDHW)
