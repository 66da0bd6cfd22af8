"""Lowerings of linear layers, batched products and convolutions to MATMUL and CONV operators."""

from __future__ import annotations

from typing import Any

from stepwell.dialects.tosa import generated as t
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import torch_dtype
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.convolving import ONCE, Placed, convolved, slices_of
from stepwell.translate.lowerings.tosa.values import Value, needs_floats, needs_known
from stepwell.translate.rewrites.tosa.operators.building import accumulator, elements


@lowers("aten.linear.default", to="tosa", sample=("2x4xf32", "3x4xf32"))
def linear(x: Value, weight: Value, bias: Value | None, *, op: Any, out: Out) -> Value:
    """Lower to MATMUL and ADD, or to one CONV2D if this takes fewer operators.

    A CONV2D includes the bias but requires rank 4; a MATMUL requires rank 3 and an ADD. For rank 3
    the MATMUL is shorter, for rank 4 the CONV2D; other ranks are reshaped for the shorter one.
    """
    needs_floats(op, x)
    width, depth = weight.shape
    is_constant = weight.key is not None
    if is_constant and (x.rank == 4 or (x.rank != 3 and bias is not None)):
        rows = x.shape if x.rank == 4 else (elements(x.shape) // depth, 1, 1, depth)
        return _pointwise(x.reshape(*rows), weight, bias).reshape(*out.shape)
    rows = x.shape if x.rank == 3 else (1, elements(x.shape) // depth, depth)
    matrix = weight.permute((1, 0)).reshape(1, depth, width)
    x = x.reshape(*rows)
    if rows[0] != 1:
        assert is_constant, "the batch was flattened"
        x = x.reshape(1, rows[0] * rows[1], depth)
    added = None if bias is None else bias.reshape(1, 1, width)
    return x.matmul(matrix, added).reshape(*out.shape)


def _pointwise(x: Value, weight: Value, bias: Value | None) -> Value:
    """Return a CONV2D with a kernel of 1 by 1: `[N, H, W, K]` by `[O, K]`."""
    out, depth = weight.shape
    kernel = weight.reshape(out, 1, 1, depth)
    placed = Placed(t.Conv2dOp, x, kernel, (*x.shape[:3], out), ONCE)
    return placed.summed(_bias_of(x, bias), x.dtype, accumulator(x.dtype))


def _bias_of(x: Value, bias: Value | None) -> Value:
    return x.tensor(torch.zeros(1, dtype=torch_dtype(x.dtype))) if bias is None else bias


@lowers("aten.bmm.default", "aten.matmul.default", to="tosa", sample=("2x3x4xf32", "2x4x5xf32"))
def bmm(x: Value, other: Value, *, op: Any, out: Out) -> Value:
    """Lower to one MATMUL, with reshapes for a `matmul` of equal batches (symbolic shapes)."""
    left, right = x.shape, other.shape
    if len(left) < 2 or left[:-2] != right[:-2] or len(left) != len(right):
        refuse(
            f"the op multiplies {list(left)} by {list(right)}; MATMUL takes two of equal batches"
        )
    needs_floats(op, x)
    batch = elements(left[:-2])
    one, another = (side.reshape(batch, *side.shape[-2:]) for side in (x, other))
    return one.matmul(another).reshape(*out.shape)


IMAGE = ("1x2x4x4xf32", "3x2x3x3xf32", None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)


@lowers("aten.convolution.default", to="tosa", sample=IMAGE)
def convolution(x: Value, weight: Value, bias: Value | None, *, op: Any, transposed: bool) -> Value:
    """Lower to CONV2D, DEPTHWISE_CONV2D, CONV3D or TRANSPOSE_CONV2D, channels last.

    A one-dimensional convolution is one of images of height 1. Groups that are not depthwise are
    several convolutions of slices, concatenated.
    """
    if x.rank == 5 and transposed:
        refuse("TOSA has no transposed convolution of three axes")
    needs_known(x, (1,), "a number of channels of")
    if transposed and any(d != 1 for d in op.arg("dilation")):
        refuse("dilation is not 1; TRANSPOSE_CONV2D has none")
    needs_floats(op, x)
    added, count = _bias_of(x, bias), 1 if bias is None else slices_of(op)

    def convolve(placed: Placed) -> Value:
        own = added.part(0, placed.group, count) if count > 1 else added
        return placed.summed(own, x.dtype, accumulator(x.dtype))

    return convolved(op, x, weight, convolve)


RULES = lowerings_of(__name__)
