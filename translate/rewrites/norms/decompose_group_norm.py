"""Write group normalisation with row statistics: a group is a row of `[N, G, C/G·…]`.

Of an image, the planes are averaged and then their averages, which asks for no order of axes: the
norm stays between convolutions without a transpose. A convolution in groups gives each channel the
average of its own group and reads no other.

Before:
    %y = aten.group_norm.default(%x, 2, eps=1.0e-05) : (tensor<2x4x3xf32>) -> tensor<2x4x3xf32>
After:
    %0 = aten.view.default(%x, [2, 2, 6]) : (tensor<2x4x3xf32>) -> tensor<2x2x6xf32>
    %1 = aten.slice.Tensor(%0, 2, 0, 1, 1) : (tensor<2x2x6xf32>) -> tensor<2x2x1xf32>
    %2 = aten.sub.Tensor(%0, %1) : (tensor<2x2x6xf32>, tensor<2x2x1xf32>) -> tensor<2x2x6xf32>
    %3 = aten.linear.default(%2, dense<0.166666672>) : (tensor<2x2x6xf32>, tensor<1x6xf32>) -> tensor<2x2x1xf32>
    %4 = aten.sub.Tensor(%2, %3) : (tensor<2x2x6xf32>, tensor<2x2x1xf32>) -> tensor<2x2x6xf32>
    %5 = aten.mul.Tensor(%4, %4) : (tensor<2x2x6xf32>, tensor<2x2x6xf32>) -> tensor<2x2x6xf32>
    %6 = aten.linear.default(%5, dense<0.166666672>, dense<1.0e-05>) : (tensor<2x2x6xf32>, tensor<1x6xf32>, tensor<1xf32>) -> tensor<2x2x1xf32>
    %7 = aten.rsqrt.default(%6) : (tensor<2x2x1xf32>) -> tensor<2x2x1xf32>
    %8 = aten.mul.Tensor(%4, %7) : (tensor<2x2x6xf32>, tensor<2x2x1xf32>) -> tensor<2x2x6xf32>
    %y = aten.view.default(%8, [2, 4, 3]) : (tensor<2x2x6xf32>) -> tensor<2x4x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.numerics import REORDERED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import Dim, dims, element
from stepwell.ir.weights import recipe
from stepwell.translate.affine.own_weights import are_from_weights
from stepwell.translate.rewrites.building import (
    emit,
    overflows,
    permute,
    put,
    reduced,
    slice_axis,
    view,
)
from stepwell.translate.rewrites.norms.decompose_layer_norm import scale_and_shift
from stepwell.translate.rewrites.norms.row_statistics import (
    ROWS,
    less_first,
    normalise,
    normalise_rows,
    row_mean,
    too_wide,
)
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_constant, not_for_xnnpack


@recipe("per_channel")
def per_channel(tensor: torch.Tensor, *, rank: int) -> torch.Tensor:
    """`[C]` as `[C, 1, …]`, to broadcast over the axes behind the channels of a rank."""
    return tensor.reshape(-1, *([1] * (rank - 2)))


@dataclass(frozen=True)
class GroupNorm:
    """A group norm of `[N, C, …]` with constant scale and shift."""

    op: SchemaOp
    shape: tuple[Dim, ...]
    groups: int


@dataclass(frozen=True)
class DecomposeGroupNorm(Rewrite[GroupNorm]):
    """`aten.group_norm.default` to row statistics and an affine part per channel."""

    name: ClassVar[str] = "decompose-group-norm"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.GroupNormDefault,)
    bound: ClassVar[Bound] = ROWS
    deviation: ClassVar[Deviation | None] = REORDERED

    def match(self, op: SchemaOp, program: Program) -> GroupNorm | Refusal | None:
        """Guards: float elements, static channels (and sizes, if of no image), constant scale."""
        shape = dims(op.operands[0].type)
        for refusal in (
            not_for_xnnpack(op),
            overflows(op.arg("eps"), element(op.operands[0].type)),
            not_constant(op.operand("weight"), "scale"),
            not_constant(op.operand("bias"), "shift"),
            cannot_be_grouped(shape),
            too_wide(summed_up(shape, op.arg("num_groups"))),
        ):
            if refusal is not None:
                return refusal
        return GroupNorm(op, shape, op.arg("num_groups"))

    def build(self, match: GroupNorm, rw: Rewriter) -> None:
        """Rows, statistics, the shape again, scale and shift."""
        op, shape = match.op, match.shape
        is_spared = match.groups != shape[1] and are_from_weights(op.operands[0], [1])
        if len(shape) == 4:
            mean = mean_of_image if match.groups == 1 else partial(mean_of_group, match.groups)
            value = op.operands[0]
            if not is_spared:
                first = first_of_groups(rw, value, match.groups)
                value = put(rw, aten.SubTensor, value, first)
            value = normalise(rw, value, op.arg("eps"), mean)
        else:
            size = summed_up(shape, match.groups)
            rows = view(rw, op.operands[0], [shape[0], match.groups, size])
            rows = rows if is_spared else less_first(rw, rows)
            value = view(rw, normalise_rows(rw, rows, op.arg("eps"), centred=False), shape)
        weight, bias = (self._spread(op.operand(n), rw, len(shape)) for n in ("weight", "bias"))
        rw.replace(op, [scale_and_shift(rw, value, weight, bias)])

    def _spread(self, value: SSAValue | None, rw: Rewriter, rank: int) -> SSAValue | None:
        key = weight_key(value) if value is not None else None
        return rw.weight(rw.weights.derive("per_channel", [key], rank=rank)) if key else None


def summed_up(shape: tuple[Dim, ...], groups: int) -> int:
    """How many numbers a constant sums up: of a group, or of its channels where they are planes."""
    behind = shape[1:2] if len(shape) == 4 else shape[1:]
    return prod(d for d in behind if isinstance(d, int)) // groups


def mean_of_planes(rw: Rewriter, value: SSAValue) -> SSAValue:
    """`mean(value, [2, 3], keepdim)`; `[N, C, H, W]` to `[N, C, 1, 1]`."""
    return reduced(rw, aten.MeanDim, value, [2, 3])


def mean_of_image(rw: Rewriter, value: SSAValue, plus: float | None = None) -> SSAValue:
    """`mean(value, [1, 2, 3], keepdim) + plus`; `[N, C, H, W]` to `[N, 1, 1, 1]`."""
    return row_mean(rw, permute(rw, mean_of_planes(rw, value), [0, 2, 3, 1]), plus)


def mean_of_group(
    groups: int, rw: Rewriter, value: SSAValue, plus: float | None = None
) -> SSAValue:
    """The mean of each channel's group, plus a number; `[N, C, H, W]` to `[N, C, 1, 1]`."""
    planes = mean_of_planes(rw, value)
    dtype = torch_dtype(element(value.type))
    channels = dims(value.type)[1]
    assert isinstance(channels, int), "the channels have a symbolic size"
    width = channels // groups
    if width == 1:  # Their own mean; a window of one pixel would read its neighbours too.
        if plus is None:
            return planes
        return put(rw, aten.AddScalar, planes, plus)
    kernel = torch.full((channels, width, 1, 1), 1.0 / width, dtype=dtype)
    bias = None
    if plus is not None:
        bias = rw.constant(torch.full((channels,), plus, dtype=dtype), "epsilon")
    return in_groups(rw, planes, rw.constant(kernel, "group_mean"), bias, groups)


def first_of_groups(rw: Rewriter, value: SSAValue, groups: int) -> SSAValue:
    """The first element of each channel's group; `[N, C, H, W]` to `[N, C or 1, 1, 1]`."""
    channels = dims(value.type)[1]
    assert isinstance(channels, int), "the channels have a symbolic size"
    corner = slice_axis(rw, slice_axis(rw, value, 2, 0, 1), 3, 0, 1)
    if groups in (1, channels):
        return corner if groups == channels else slice_axis(rw, corner, 1, 0, 1)
    kernel = torch.zeros(
        (channels, channels // groups, 1, 1), dtype=torch_dtype(element(value.type))
    )
    kernel[:, 0] = 1
    return in_groups(rw, corner, rw.constant(kernel, "group_first"), None, groups)


def in_groups(
    rw: Rewriter, planes: SSAValue, kernel: SSAValue, bias: SSAValue | None, groups: int
) -> SSAValue:
    """A convolution of planes of one pixel in which a channel reads its own group."""
    layer = aten.ConvolutionDefault.make(
        planes,
        kernel,
        bias,
        [1, 1],
        [0, 0],
        [1, 1],
        False,
        [0, 0],
        groups,
        result_types=[planes.type],
    )
    return emit(rw, layer)


def cannot_be_grouped(shape: tuple[Dim, ...]) -> Refusal | None:
    """Planes of any size are averaged by pooling; what else is summed up has static sizes."""
    if all(isinstance(d, int) for d in shape[1 : 2 if len(shape) == 4 else None]):
        return None
    return Refusal("the channels, or sizes behind the channels of no image, are symbolic")
