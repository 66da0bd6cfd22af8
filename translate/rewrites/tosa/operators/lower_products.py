"""Linear layers, batched products and convolutions: MATMUL and the CONV operators.

Before:
    %z = aten.bmm.default(%x, %y) : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
After:
    %z = tosa.matmul %x, %y, dense<0.0>, dense<0.0> : (tensor<2x3x4xf32>, tensor<2x4x5xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<2x3x5xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.rewriting import Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.operators.building import Builder, elements, shape_of
from stepwell.translate.rewrites.tosa.operators.convolving import Placed, convolved, part, slices_of
from stepwell.translate.rewrites.tosa.operators.lowering import (
    LowerToTosa,
    needs_floats,
    needs_known,
)
from stepwell.translate.rewrites.tosa.operators.volumes import convolved_volume


@dataclass(frozen=True)
class LowerBmm(LowerToTosa):
    """`bmm` to MATMUL; a `matmul` of equal batches, which symbolic shapes leave, between reshapes."""

    name: ClassVar[str] = "lower-bmm-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.BmmDefault, aten.MatmulDefault)

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

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats, one to three axes; transposed ones without dilation, and no volumes."""
        spatial = len(shape_of(op.operands[0])) - 2
        if spatial == 3 and op.arg("transposed"):
            return Refusal("TOSA has no transposed convolution of three axes")
        refusal = needs_known(op.operands[0], (1,), "a number of channels of")
        if refusal is not None:
            return refusal
        if op.arg("transposed") and any(d != 1 for d in op.arg("dilation")):
            return Refusal("dilation is not 1; TRANSPOSE_CONV2D has none")
        return needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """Transpose in, convolve, transpose out; a missing axis is put in and taken out."""
        x, weight, given = op.operands[0], op.operands[1], op.operand("bias")
        bias = given if given is not None else _no_bias(x, b)
        is_volume = len(shape_of(x)) == 5
        groups = op.arg("groups") if is_volume else slices_of(op)

        def convolve(placed: Placed) -> SSAValue:
            count = 1 if given is None else groups
            operands = (placed.image, placed.kernel, part(bias, 0, placed.group, count, b))
            return b.conv2d(placed.operator, operands, placed.shape, **placed.lists)

        return (convolved_volume if is_volume else convolved)(op, x, weight, convolve, b)
