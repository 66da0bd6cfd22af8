"""Linear layers, batched products and convolutions: MATMUL and the CONV operators.

Before:
    func.func @forward(%x: tensor<2x3x4xf32>, %y: tensor<2x4x5xf32>) -> tensor<2x3x5xf32> {
      %z = aten.bmm.default(%x, %y) : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
      func.return %z : tensor<2x3x5xf32>
    }
After:
    func.func @forward(%x: tensor<2x3x4xf32>, %y: tensor<2x4x5xf32>) -> tensor<2x3x5xf32> {
      %0 = stepwell.weight <"constant#6f18446dfe91"> "constant" : tensor<1xf32>
      %1 = stepwell.weight <"constant#6f18446dfe91"> "constant" : tensor<1xf32>
      %z = tosa.matmul %x, %y, %0, %1 : (tensor<2x3x4xf32>, tensor<2x4x5xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<2x3x5xf32>
      func.return %z : tensor<2x3x5xf32>
    }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import i32, torch_dtype
from stepwell.ir.rewriting import Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.building import Builder, elements, shape_of
from stepwell.translate.rewrites.tosa.lowering import LowerToTosa, needs_floats, needs_known
from stepwell.translate.rewrites.tosa.volumes import convolved_volume, narrow

TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


@dataclass(frozen=True)
class LowerBmm(LowerToTosa):
    """`bmm` to MATMUL; a `matmul` of equal batches, which symbolic shapes leave, between reshapes."""

    name: ClassVar[str] = "lower-bmm-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.BmmDefault, aten.MatmulDefault)
    takes_symbols: ClassVar[bool] = True

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats only, one batch on both sides."""
        left, right = shape_of(op.operands[0]), shape_of(op.operands[1])
        if len(left) < 2 or left[:-2] != right[:-2] or len(left) != len(right):
            return Refusal(
                f"it multiplies {list(left)} by {list(right)}; MATMUL takes two of equal batches"
            )
        return needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One MATMUL."""
        left, right = op.operands[:2]
        batch = elements(shape_of(left)[:-2])
        left, right = (b.reshape(v, (batch, *shape_of(v)[-2:])) for v in (left, right))
        return b.reshape(b.matmul(left, right), shape_of(op.results[0]))


@dataclass(frozen=True)
class LowerLinear(LowerToTosa):
    """`linear` to MATMUL and ADD, or to one CONV2D where that takes fewer operators.

    A CONV2D has the bias but needs rank 4, a MATMUL needs rank 3 and an ADD: rank 3 makes the
    MATMUL, rank 4 the CONV2D shorter; other ranks are reshaped for whichever is shorter.
    """

    name: ClassVar[str] = "lower-linear-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.LinearDefault,)
    takes_symbols: ClassVar[bool] = True

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats, at least one row."""
        return needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """Reshape, multiply, reshape back: reshapes that do nothing are not written."""
        x, weight, bias = op.operands[0], op.operands[1], op.operand("bias")
        shape, (out, depth) = shape_of(x), shape_of(weight)
        result = shape_of(op.results[0])
        constant = weight_key(weight) is not None
        if constant and (len(shape) == 4 or (len(shape) != 3 and bias is not None)):
            rows = shape if len(shape) == 4 else (elements(shape) // depth, 1, 1, depth)
            return b.reshape(_pointwise(b.reshape(x, rows), weight, bias, b), result)
        rows = shape if len(shape) == 3 else (1, elements(shape) // depth, depth)
        matrix = b.reshape(b.transpose(weight, (1, 0)), (1, depth, out))
        x = b.reshape(x, rows)
        if rows[0] != 1:
            if not constant:
                raise AssertionError("the batch was flattened")
            x, batch = b.reshape(x, (1, rows[0] * rows[1], depth)), rows
        else:
            batch = None
        y = b.matmul(x, matrix, None if bias is None else b.reshape(bias, (1, 1, out)))
        assert batch is None or elements(batch[:2]) == shape_of(y)[1]
        return b.reshape(y, result)


def _pointwise(x: SSAValue, weight: SSAValue, bias: SSAValue | None, b: Builder) -> SSAValue:
    """A CONV2D with a kernel of 1 by 1: `[N, H, W, K]` by `[O, K]`."""
    out, depth = shape_of(weight)
    kernel = b.reshape(weight, (out, 1, 1, depth))
    bias = bias if bias is not None else _no_bias(x, b)
    return b.conv2d(
        t.Conv2dOp,
        (x, kernel, bias),
        (*shape_of(x)[:3], out),
        pad=(0, 0, 0, 0),
        stride=(1, 1),
        dilation=(1, 1),
    )


def _no_bias(x: SSAValue, b: Builder) -> SSAValue:
    return b.constant(torch.zeros(1, dtype=torch_dtype(element(x.type))))


@dataclass(frozen=True)
class LowerConvolution(LowerToTosa):
    """`convolution` to CONV2D, DEPTHWISE_CONV2D, CONV3D or TRANSPOSE_CONV2D, channels last.

    A one-dimensional one is an image of height 1; groups that are not depthwise are several
    convolutions of slices, concatenated.
    """

    name: ClassVar[str] = "lower-convolution-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ConvolutionDefault,)
    takes_symbols: ClassVar[bool] = True

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats, one to three axes; transposed ones without dilation, and no volumes."""
        spatial = len(shape_of(op.operands[0])) - 2
        if spatial == 3 and op.arg("transposed"):
            return Refusal("TOSA has no transposed convolution of three axes")
        known = range(1, spatial + 2)
        refusal = needs_known(op.operands[0], known, "an image of size")
        if refusal is not None:
            return refusal
        if op.arg("transposed") and any(d != 1 for d in op.arg("dilation")):
            return Refusal("dilation is not 1; TRANSPOSE_CONV2D has none")
        return needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """Transpose in, convolve, transpose out; a missing axis is put in and taken out."""
        x, weight, bias = op.operands[0], op.operands[1], op.operand("bias")
        stride, padding, dilation = (
            list(op.arg(name)) for name in ("stride", "padding", "dilation")
        )
        extra = list(op.arg("output_padding"))
        if len(shape_of(x)) == 5:
            return convolved_volume(op, bias if bias is not None else _no_bias(x, b), b)
        if len(shape_of(x)) == 3:
            x = b.reshape(x, (*shape_of(x)[:2], 1, shape_of(x)[2]))
            weight = b.reshape(weight, (*shape_of(weight)[:2], 1, shape_of(weight)[2]))
            stride, dilation = [1, *stride], [1, *dilation]
            padding, extra = [0, *padding], [0, *extra]
        image = b.transpose(x, TO_NHWC)
        bias = bias if bias is not None else _no_bias(x, b)
        if op.arg("transposed"):
            count = op.arg("groups")
            parts = [
                _transposed(
                    _part(image, 3, group, count, b),
                    _part(weight, 0, group, count, b),
                    _part(bias, 0, group, count, b) if shape_of(bias)[0] > 1 else bias,
                    stride,
                    padding,
                    extra,
                    b,
                )
                for group in range(count)
            ]
            y = parts[0] if count == 1 else _joined(parts, b)
        else:
            geometry = _Geometry(stride, padding, dilation)
            y = _grouped(image, weight, bias, op.arg("groups"), geometry, b)
        return b.reshape(b.transpose(y, TO_NCHW), shape_of(op.results[0]))


@dataclass(frozen=True)
class _Geometry:
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]

    def size(self, held: int, kernel: int, axis: int) -> tuple[int, int]:
        """The output's size, and the padding behind that makes it come out even, as TOSA asks."""
        before, step = self.padding[axis], self.stride[axis]
        span = (kernel - 1) * self.dilation[axis] + 1
        size = (held + 2 * before - span) // step + 1
        return size, (size - 1) * step + span - held - before


def _grouped(
    image: SSAValue,
    weight: SSAValue,
    bias: SSAValue,
    groups: int,
    geometry: _Geometry,
    b: Builder,
) -> SSAValue:
    n, height, width, channels = shape_of(image)
    out, per_group, kernel_h, kernel_w = shape_of(weight)
    rows, bottom = geometry.size(height, kernel_h, 0)
    columns, right = geometry.size(width, kernel_w, 1)
    image, bottom, right = _cropped(image, bottom, right, b)
    lists = {
        "pad": (geometry.padding[0], bottom, geometry.padding[1], right),
        "stride": geometry.stride,
        "dilation": geometry.dilation,
    }
    if groups == 1:
        kernel = b.transpose(weight, TO_NHWC)
        return b.conv2d(t.Conv2dOp, (image, kernel, bias), (n, rows, columns, out), **lists)
    if per_group == 1:
        kernel = b.transpose(weight, (2, 3, 0, 1))
        kernel = b.reshape(kernel, (kernel_h, kernel_w, channels, out // channels))
        shape = (n, rows, columns, out)
        return b.conv2d(t.DepthwiseConv2dOp, (image, kernel, bias), shape, **lists)
    parts = [
        b.conv2d(
            t.Conv2dOp,
            (
                _part(image, 3, group, groups, b),
                b.transpose(_part(weight, 0, group, groups, b), TO_NHWC),
                _part(bias, 0, group, groups, b) if shape_of(bias)[0] == out else bias,
            ),
            (n, rows, columns, out // groups),
            **lists,
        )
        for group in range(groups)
    ]
    shape = (n, rows, columns, out)
    return b.op(t.ConcatOp, parts, shape, element(image.type), axis=IntegerAttr(3, i32))


@dataclass(frozen=True)
class ConvolutionPlan:
    """A dense or depthwise convolution in NHWC, all but bias and zero points."""

    operator: type[TosaOp]
    image: SSAValue
    kernel: SSAValue
    shape: tuple[int, ...]
    lists: dict[str, tuple[int, ...]]


def plan_convolution(
    op: SchemaOp, image: SSAValue, weight: SSAValue, b: Builder
) -> ConvolutionPlan:
    """How a `convolution` of an NHWC image by an OIHW weight is written."""
    stride, padding, dilation = (tuple(op.arg(n)) for n in ("stride", "padding", "dilation"))
    geometry = _Geometry(stride, padding, dilation)
    n, height, width, channels = shape_of(image)
    out, _, kernel_h, kernel_w = shape_of(weight)
    rows, bottom = geometry.size(height, kernel_h, 0)
    columns, right = geometry.size(width, kernel_w, 1)
    image, bottom, right = _cropped(image, bottom, right, b)
    pad = (padding[0], bottom, padding[1], right)
    lists = {"pad": pad, "stride": stride, "dilation": dilation}
    shape = (n, rows, columns, out)
    if op.arg("groups") == 1:
        kernel = b.transpose(weight, TO_NHWC)
        return ConvolutionPlan(t.Conv2dOp, image, kernel, shape, lists)
    kernel = b.transpose(weight, (2, 3, 0, 1))
    kernel = b.reshape(kernel, (kernel_h, kernel_w, channels, out // channels))
    return ConvolutionPlan(t.DepthwiseConv2dOp, image, kernel, shape, lists)


def _cropped(image: SSAValue, bottom: int, right: int, b: Builder) -> tuple[SSAValue, int, int]:
    """Rows and columns that no window reaches are sliced off: TOSA has no negative padding."""
    if bottom >= 0 and right >= 0:
        return image, bottom, right
    n, height, width, channels = shape_of(image)
    size = (n, height + min(bottom, 0), width + min(right, 0), channels)
    operands = [image, b.sizes((0, 0, 0, 0)), b.sizes(size)]
    image = b.op(t.SliceOp, operands, size, element(image.type))
    return image, max(bottom, 0), max(right, 0)


def _part(value: SSAValue, axis: int, index: int, count: int, b: Builder) -> SSAValue:
    """One of `count` equal slices."""
    if count == 1:
        return value
    shape = list(shape_of(value))
    shape[axis] //= count
    start = [0] * len(shape)
    start[axis] = index * shape[axis]
    key = weight_key(value)
    if key is not None:
        derived = b.rw.weights.derive(
            "tosa_slice", [key], axis=axis, start=start[axis], size=shape[axis]
        )
        return b.weight(derived)
    operands = [value, b.sizes(start), b.sizes(shape)]
    return b.op(t.SliceOp, operands, shape, element(value.type))


def _joined(parts: Sequence[SSAValue], b: Builder) -> SSAValue:
    """The channels of groups, one after the other."""
    *size, each = shape_of(parts[0])
    held = element(parts[0].type)
    return b.op(t.ConcatOp, parts, (*size, each * len(parts)), held, axis=IntegerAttr(3, i32))


def _transposed(
    image: SSAValue,
    weight: SSAValue,
    bias: SSAValue,
    stride: Sequence[int],
    padding: Sequence[int],
    extra: Sequence[int],
    b: Builder,
) -> SSAValue:
    n, height, width, _ = shape_of(image)
    _, out, kernel_h, kernel_w = shape_of(weight)
    kernel = b.transpose(weight, (1, 2, 3, 0))
    wanted = [-padding[0], extra[0] - padding[0], -padding[1], extra[1] - padding[1]]
    # Less than the kernel may be taken away; the rest is cut off behind.
    pads = [
        max(pad, 1 - size)
        for pad, size in zip(wanted, [kernel_h] * 2 + [kernel_w] * 2, strict=True)
    ]
    rows = (height - 1) * stride[0] + kernel_h + pads[0] + pads[1]
    columns = (width - 1) * stride[1] + kernel_w + pads[2] + pads[3]
    y = b.conv2d(
        t.TransposeConv2dOp,
        (image, kernel, bias),
        (n, rows, columns, out),
        out_pad=pads,
        stride=stride,
    )
    for axis, size in ((1, rows), (2, columns)):
        before, behind = (pads[i] - wanted[i] for i in (2 * axis - 2, 2 * axis - 1))
        y = narrow(y, axis, before, size - before - behind, b)
    return y
