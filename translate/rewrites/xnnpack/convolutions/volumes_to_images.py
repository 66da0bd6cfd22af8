"""A convolution of volumes as a sum of convolutions of images.

Neither XNNPACK nor ExecuTorch's kernels convolve in three dimensions. The kernel's slices in depth
are filters of images: each is applied to the planes it meets, and their results are added.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x2x2x1x1xf32>
    %y = aten.convolution.default(%x, %w, none, [1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 1) : (tensor<1x2x4x5x5xf32>, tensor<3x2x2x1x1xf32>) -> tensor<1x3x3x5x5xf32>
After:
    %w0 = stepwell.weight <"w#depth.8a1d3b9c5e21"> "parameter" : tensor<3x2x1x1xf32>
    %w1 = stepwell.weight <"w#depth.8a1d3b9c5e22"> "parameter" : tensor<3x2x1x1xf32>
    %0 = aten.permute.default(%x, [0, 2, 1, 3, 4]) : (tensor<1x2x4x5x5xf32>) -> tensor<1x4x2x5x5xf32>
    %1 = aten.slice.Tensor(%0, 1, 0, 3, 1) : (tensor<1x4x2x5x5xf32>) -> tensor<1x3x2x5x5xf32>
    %2 = aten.view.default(%1, [3, 2, 5, 5]) : (tensor<1x3x2x5x5xf32>) -> tensor<3x2x5x5xf32>
    %3 = aten.convolution.default(%2, %w0, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<3x2x5x5xf32>, tensor<3x2x1x1xf32>) -> tensor<3x3x5x5xf32>
    %4 = aten.slice.Tensor(%0, 1, 1, 4, 1) : (tensor<1x4x2x5x5xf32>) -> tensor<1x3x2x5x5xf32>
    %5 = aten.view.default(%4, [3, 2, 5, 5]) : (tensor<1x3x2x5x5xf32>) -> tensor<3x2x5x5xf32>
    %6 = aten.convolution.default(%5, %w1, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<3x2x5x5xf32>, tensor<3x2x1x1xf32>) -> tensor<3x3x5x5xf32>
    %7 = aten.add.Tensor(%3, %6) : (tensor<3x3x5x5xf32>, tensor<3x3x5x5xf32>) -> tensor<3x3x5x5xf32>
    %8 = aten.view.default(%7, [1, 3, 3, 5, 5]) : (tensor<3x3x5x5xf32>) -> tensor<1x3x3x5x5xf32>
    %y = aten.permute.default(%8, [0, 2, 1, 3, 4]) : (tensor<1x3x3x5x5xf32>) -> tensor<1x3x3x5x5xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.core import WeightOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element, tensor
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.building import emit, permute, static_dims, view

SWAP_DEPTH = (0, 2, 1, 3, 4)
"""`[N, C, D, H, W]` to `[N, D, C, H, W]` and back."""


@recipe("depth")
def depth(kernel: torch.Tensor, *, at: int) -> torch.Tensor:
    """One slice `[C', C, KH, KW]` of a kernel `[C', C, KD, KH, KW]`: a view, no copy."""
    return kernel[:, :, at]


@dataclass(frozen=True)
class VolumeConvolution:
    """A convolution of `[N, C, D, H, W]` with a constant kernel."""

    op: SchemaOp
    kernel: WeightOp
    shape: tuple[int, ...]
    made: tuple[int, ...]


@dataclass(frozen=True)
class VolumesToImages(Rewrite[VolumeConvolution]):
    """`aten.convolution` of volumes to convolutions of images, one for each slice of the kernel."""

    name: ClassVar[str] = "volumes-to-images"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ConvolutionDefault,)
    bound: ClassVar[Bound] = roundings("products are summed slice by slice")

    def match(self, op: SchemaOp, program: Program) -> VolumeConvolution | Refusal | None:
        """Guards: a volume of static size, a constant kernel, no transposition."""
        shape, made = static_dims(op.operands[0]), static_dims(op.results[0])
        if len(op.arg("stride")) != 3:
            return None
        if shape is None:
            return Refusal("the size of the volume is symbolic")
        assert made is not None, "of known sizes and numbers"
        kernel = op.operands[1].owner
        if not isinstance(kernel, WeightOp):
            return Refusal("the kernel is computed at run time")
        if op.arg("transposed"):
            return Refusal("a transposed convolution of volumes has no form in images")
        return VolumeConvolution(op, kernel, shape, made)

    def build(self, match: VolumeConvolution, rw: Rewriter) -> None:
        """Depth into the batch, a convolution for each slice of the kernel, their sum."""
        op = match.op
        stride, padding, dilation = (op.arg(n) for n in ("stride", "padding", "dilation"))
        batch, filters, planes, *space = match.made
        value = permute(rw, op.operands[0], SWAP_DEPTH)
        if padding[0]:
            value = _padded(rw, value, padding[0])
        bias, total = op.operand("bias"), None
        kernel = static_dims(match.kernel.result)
        assert kernel is not None
        for at in range(kernel[2]):
            start = at * dilation[0]
            met = _every(rw, value, start, stride[0], planes)
            images = view(rw, met, [batch * planes, match.shape[1], *match.shape[3:]])
            key = rw.weights.derive("depth", [match.kernel.key.data], at=at)
            part = aten.ConvolutionDefault.make(
                images,
                rw.weight(key, match.kernel.kind.data),
                bias if at == 0 else None,
                list(stride[1:]),
                list(padding[1:]),
                list(dilation[1:]),
                False,
                [0, 0],
                op.arg("groups"),
                result_types=[tensor([batch * planes, filters, *space], element(value.type))],
            )
            made = emit(rw, part)
            total = made if total is None else emit(rw, aten.AddTensor.make(total, made))
        assert total is not None
        joined = view(rw, total, [batch, planes, filters, *space])
        rw.replace(op, [permute(rw, joined, SWAP_DEPTH)])


def _every(rw: Rewriter, value: SSAValue, start: int, step: int, count: int) -> SSAValue:
    """`count` planes of axis 1, each `step` behind the one before."""
    shape = list(static_dims(value) or ())
    stop = start + (count - 1) * step + 1
    if (start, stop, step) == (0, shape[1], 1):
        return value
    shape[1] = count
    result = tensor(shape, element(value.type))
    return emit(rw, aten.SliceTensor.make(value, 1, start, stop, step, result_types=[result]))


def _padded(rw: Rewriter, value: SSAValue, amount: int) -> SSAValue:
    """Planes of zeros before and behind, on axis 1 of five."""
    shape = list(static_dims(value) or ())
    shape[1] += 2 * amount
    result = tensor(shape, element(value.type))
    amounts = [0, 0, 0, 0, 0, 0, amount, amount]
    return emit(rw, aten.ConstantPadNdDefault.make(value, amounts, 0, result_types=[result]))
