"""Convolutions of three axes: CONV3D in NDHWC, one a group."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import i32
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.building import Builder, shape_of

TO_NDHWC, TO_NCDHW = (0, 2, 3, 4, 1), (0, 4, 1, 2, 3)


def narrow(x: SSAValue, axis: int, start: int, size: int, b: Builder) -> SSAValue:
    """A part of one axis; that of a constant at compile time."""
    shape = list(shape_of(x))
    if shape[axis] == size:
        return x
    key = weight_key(x)
    if key is not None:
        part = {"axis": axis, "start": start, "size": size}
        return b.weight(b.rw.weights.derive("tosa_slice", [key], **part))
    starts = [start if i == axis else 0 for i in range(len(shape))]
    shape[axis] = size
    return b.op(t.SliceOp, [x, b.sizes(starts), b.sizes(shape)], shape, element(x.type))


def convolved_volume(op: SchemaOp, bias: SSAValue, b: Builder) -> SSAValue:
    """A `convolution` of an NCDHW volume by an OIDHW weight, in NCDHW."""
    image, kernel = (b.transpose(value, TO_NDHWC) for value in op.operands[:2])
    result = shape_of(op.results[0])
    stride, dilation = list(op.arg("stride")), list(op.arg("dilation"))
    pad: list[int] = []
    for axis, before in enumerate(op.arg("padding"), 1):
        span = (shape_of(kernel)[axis] - 1) * dilation[axis - 1] + 1
        held, size = shape_of(image)[axis], result[axis + 1]
        behind = (size - 1) * stride[axis - 1] + span - held - before
        if behind < 0:  # what no window reaches: TOSA has no negative padding
            image = narrow(image, axis, 0, held + behind, b)
        pad += [before, max(behind, 0)]
    lists = {"pad": pad, "stride": stride, "dilation": dilation}
    return b.transpose(_groups(op.arg("groups"), (image, kernel, bias), result, lists, b), TO_NCDHW)


def _groups(
    groups: int,
    operands: tuple[SSAValue, SSAValue, SSAValue],
    result: Sequence[int],
    lists: dict[str, list[int]],
    b: Builder,
) -> SSAValue:
    image, kernel, bias = operands
    n, out, *spatial = result
    per, each = shape_of(image)[4] // groups, out // groups
    shape = (n, *spatial, each)
    parts: list[SSAValue] = []
    for group in range(groups):
        part = narrow(image, 4, group * per, per, b)
        weight = narrow(kernel, 0, group * each, each, b)
        has_bias = shape_of(bias)[0] == out
        shift = narrow(bias, 0, group * each, each, b) if has_bias else bias
        parts.append(b.conv2d(t.Conv3dOp, (part, weight, shift), shape, **lists))
    if groups == 1:
        return parts[0]
    whole = (n, *spatial, out)
    return b.op(t.ConcatOp, parts, whole, element(image.type), axis=IntegerAttr(4, i32))
