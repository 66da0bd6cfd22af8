"""Take the scale and shift of each channel in front of a convolution into its weight and bias.

    convolution(x * g + b, W, c) = convolution(x, W·g, c + Σ W·b)

A batch norm without a layer in front of it leaves such a pair, and so does a group norm. Padding
puts zeros around what is convolved: a factor keeps them, a shift does not, so a shift is taken in
only where nothing is padded. Every reader of the pair must be such a convolution, or nothing is
saved.

Before:
    func.func @forward(%x: tensor<1x3x5x5xf32>) -> tensor<1x4x5x5xf32> {
      %g = stepwell.weight <"g"> "parameter" : tensor<3x1x1xf32>
      %b = stepwell.weight <"b"> "parameter" : tensor<3x1x1xf32>
      %w = stepwell.weight <"w"> "parameter" : tensor<4x3x1x1xf32>
      %s = aten.mul.Tensor(%x, %g) : (tensor<1x3x5x5xf32>, tensor<3x1x1xf32>) -> tensor<1x3x5x5xf32>
      %a = aten.add.Tensor(%s, %b) : (tensor<1x3x5x5xf32>, tensor<3x1x1xf32>) -> tensor<1x3x5x5xf32>
      %y = aten.convolution.default(%a, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x5x5xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x5x5xf32>
      func.return %y : tensor<1x4x5x5xf32>
    }
After:
    func.func @forward(%x: tensor<1x3x5x5xf32>) -> tensor<1x4x5x5xf32> {
      %0 = stepwell.weight <"w#shift-through-convolution.e4d522b6830a"> "constant" : tensor<4xf32>
      %1 = stepwell.weight <"w#scale-input-channels.c7a8571f8423"> "constant" : tensor<4x3x1x1xf32>
      %y = aten.convolution.default(%x, %1, %0, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x5x5xf32>, tensor<4x3x1x1xf32>, tensor<4xf32>) -> tensor<1x4x5x5xf32>
      func.return %y : tensor<1x4x5x5xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import weight_key
from stepwell.ir.numerics import REORDERED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.aten.building import (
    constant_along_channels,
    constant_side,
    emit_as,
)
from stepwell.translate.rewrites.aten.recipes import derive


@recipe("scale-input-channels")
def scale_input_channels(kernel: torch.Tensor, scale: torch.Tensor, *, groups: int) -> torch.Tensor:
    """A kernel `[out, in / groups, …]` with every input channel times its factor."""
    return (kernel.double() * _of_inputs(kernel, scale, groups)).to(kernel.dtype)


@recipe("shift-through-convolution")
def shift_through_convolution(
    kernel: torch.Tensor, shift: torch.Tensor, *bias: torch.Tensor, groups: int
) -> torch.Tensor:
    """What a shift of every input channel adds to every output, with the bias; summed in f64."""
    moved = (kernel.double() * _of_inputs(kernel, shift, groups)).flatten(1).sum(1)
    for held in bias:
        moved = moved + held.double()
    return moved.to(kernel.dtype)


def _of_inputs(kernel: torch.Tensor, constant: torch.Tensor, groups: int) -> torch.Tensor:
    """A constant of each input channel beside the kernel's elements that read that channel."""
    outputs, inputs, *space = kernel.shape
    spread = constant.double().reshape(-1).expand(groups * inputs).reshape(groups, inputs)
    return spread.repeat_interleave(outputs // groups, 0).reshape(
        outputs, inputs, *(1,) * len(space)
    )


@dataclass(frozen=True)
class AffineBeforeConvolution:
    """A convolution that reads `source * scale + shift`; one of the two may be missing."""

    op: SchemaOp
    source: SSAValue
    scale: str | None
    shift: str | None


@dataclass(frozen=True)
class FoldAffineIntoConvolution(Rewrite[AffineBeforeConvolution]):
    """`convolution(x * g + b)` to `convolution(x)`, if all readers are such convolutions."""

    name: ClassVar[str] = "fold-affine-into-convolution"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ConvolutionDefault,)
    bound: ClassVar[Bound] = Bound(2e-5, 1e-5, "products with the folded weight, reassociated")

    def match(self, op: SchemaOp, program: Program) -> AffineBeforeConvolution | Refusal | None:
        """Guards: constants along the channels, no padding under a shift, no other readers."""
        value, shift, scale = op.operands[0], None, None
        shifted = constant_side(value, aten.AddTensor, constant_along_channels)
        if shifted is not None:
            value, shift = shifted
        if shift is None or value.has_one_use():
            scaled = constant_side(value, aten.MulTensor, constant_along_channels)
            if scaled is not None:
                value, scale = scaled
        if value is op.operands[0]:
            return None
        for use in op.operands[0].uses:
            refusal = takes_no_constants(use.operation, use.index, shift is not None)
            if refusal is not None:
                return refusal
        return AffineBeforeConvolution(op, value, scale, shift)

    def deviates(self, match: AffineBeforeConvolution, program: Program) -> Deviation | None:
        """Products in another order."""
        return REORDERED

    def build(self, match: AffineBeforeConvolution, rw: Rewriter) -> None:
        """Derive the weights; the scale and shift die with their last reader."""
        op, result = match.op, match.op.results[0]
        arguments = {**op.present(), "input": match.source}
        weight, bias, groups = weight_key(op.operands[1]), op.operand("bias"), op.arg("groups")
        assert weight is not None
        if match.shift is not None:
            held = weight_key(bias) if bias is not None else None
            sources = [weight, match.shift, *([held] if held else [])]
            arguments["bias"] = derive(rw, "shift-through-convolution", sources, groups=groups)
        if match.scale is not None:
            sources = [weight, match.scale]
            arguments["weight"] = derive(rw, "scale-input-channels", sources, groups=groups)
        new = aten.ConvolutionDefault.from_arguments(arguments, [result.type])
        rw.replace(op, [emit_as(rw, new, result)])


def takes_no_constants(reader: Operation, index: int, shifted: bool) -> Refusal | None:
    """Whether a reader is not a convolution that can take in a scale, or also a shift."""
    if not isinstance(reader, aten.ConvolutionDefault) or index != 0:
        return Refusal(f"{reader.name} reads the scaled value too: nothing is saved")
    if reader.arg("transposed"):
        return Refusal("the convolution is transposed: its borders sum fewer inputs")
    if weight_key(reader.operands[1]) is None:
        return Refusal("the convolution's weight is computed at run time")
    if not shifted:
        return None
    if any(reader.arg("padding")):
        return Refusal("the convolution pads with zeros, which the shift would have to leave alone")
    bias = reader.operand("bias")
    if bias is not None and weight_key(bias) is None:
        return Refusal("the convolution's bias is computed at run time")
    return None
