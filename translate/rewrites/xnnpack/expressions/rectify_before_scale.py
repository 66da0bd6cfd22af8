"""Rectify before a positive scale, so that the convolution behind takes scale and shift in.

    relu(x * g + b) = max(x, −b/g) * g + b          for g > 0
    relu(x * g + b) = relu(x + b/g) * g

Nets that norm and rectify before they convolve (DenseNet, ResNet v2) leave such a batch norm: three
steps over the image where one will do. `fold-affine-into-layer` then takes in what stands
behind the maximum; where the convolution pads, which a shift may not pass, the factor alone.

Before:
    %g = stepwell.weight <"g#positive"> "parameter" : tensor<3x1x1xf32>
    %b = stepwell.weight <"b"> "parameter" : tensor<3x1x1xf32>
    %w = stepwell.weight <"w"> "parameter" : tensor<4x3x1x1xf32>
    %s = aten.mul.Tensor(%x, %g) : (tensor<1x3x5x5xf32>, tensor<3x1x1xf32>) -> tensor<1x3x5x5xf32>
    %a = aten.add.Tensor(%s, %b) : (tensor<1x3x5x5xf32>, tensor<3x1x1xf32>) -> tensor<1x3x5x5xf32>
    %r = aten.relu.default(%a) : (tensor<1x3x5x5xf32>) -> tensor<1x3x5x5xf32>
    %y = aten.convolution.default(%r, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x5x5xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x5x5xf32>
After:
    %g = stepwell.weight <"g#positive"> "parameter" : tensor<3x1x1xf32>
    %b = stepwell.weight <"b"> "parameter" : tensor<3x1x1xf32>
    %w = stepwell.weight <"w"> "parameter" : tensor<4x3x1x1xf32>
    %0 = stepwell.weight <"b#zero-of-affine.e4d522b6830a"> "constant" : tensor<3x1x1xf32>
    %1 = aten.maximum.default(%x, %0) : (tensor<1x3x5x5xf32>, tensor<3x1x1xf32>) -> tensor<1x3x5x5xf32>
    %2 = aten.mul.Tensor(%1, %g) : (tensor<1x3x5x5xf32>, tensor<3x1x1xf32>) -> tensor<1x3x5x5xf32>
    %r = aten.add.Tensor(%2, %b) : (tensor<1x3x5x5xf32>, tensor<3x1x1xf32>) -> tensor<1x3x5x5xf32>
    %y = aten.convolution.default(%r, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x5x5xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x5x5xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import is_float
from stepwell.ir.numerics import REORDERED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.ir.weights import recipe
from stepwell.translate.affine.constants import constant_side
from stepwell.translate.affine.layers import LAYERS
from stepwell.translate.rewrites.building import emit

CHANNELS = 1


@recipe("zero-of-affine")
def zero_of_affine(shift: torch.Tensor, scale: torch.Tensor, *, negated: bool) -> torch.Tensor:
    """−b/g, where x·g + b is zero, or b/g."""
    ratio = (shift.double() / scale.double()).to(shift.dtype)
    return ratio if negated else -ratio


@dataclass(frozen=True)
class RectifiedAffine:
    """`relu(source * scale + shift)` in front of convolutions, of which one pads if `is_padded`."""

    op: SchemaOp
    source: SSAValue
    scale: str
    shift: str
    is_padded: bool


@dataclass(frozen=True)
class RectifyBeforeScale(Rewrite[RectifiedAffine]):
    """`convolution(relu(x * g + b))` to `convolution(max(x, −b/g) * g + b)`."""

    name: ClassVar[str] = "rectify-before-scale"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ReluDefault,)
    bound: ClassVar[Bound] = roundings("zeros are −b/g·g + b, which may round")
    deviation: ClassVar[Deviation | None] = REORDERED

    def match(self, op: SchemaOp, program: Program) -> RectifiedAffine | Refusal | None:
        """Guards: positive factors, nobody else reads, convolutions that take the constants in."""
        shifted = constant_side(op.operands[0], aten.AddTensor, CHANNELS)
        if shifted is None:
            return None
        scaled = constant_side(shifted[0], aten.MulTensor, CHANNELS)
        if scaled is None:
            return None
        if not (op.operands[0].has_one_use() and shifted[0].has_one_use()):
            return Refusal("the scaled value is read before it is rectified too")
        if not is_float(element(op.results[0].type)):
            return Refusal("integers have no quotient of shift and factor")
        is_padded = False
        for use in op.results[0].uses:
            reader = use.operation
            if not isinstance(reader, aten.ConvolutionDefault) or use.index != 0:
                return Refusal(f"{reader.name} reads the scaled value too: nothing is saved")
            layer = LAYERS[type(reader)]
            refusal = layer.refuses_input(reader, shifted=False)
            if refusal is not None:
                return refusal
            is_padded |= layer.refuses_input(reader, shifted=True) is not None
        store, scale, shift = program.weights, scaled[1], shifted[1]
        if not bool((store.get(scale) > 0).all()):
            return Refusal("a factor is not positive: what it scales is rectified from above")
        if not bool(
            zero_of_affine(store.get(shift), store.get(scale), negated=False).isfinite().all()
        ):
            return Refusal("a factor is too small to divide by")
        return RectifiedAffine(op, scaled[0], scale, shift, is_padded)

    def build(self, match: RectifiedAffine, rw: Rewriter) -> None:
        """The maximum, then factor and shift; or shift, rectifier and factor."""
        made = match.op.results[0].type

        def of(cls: type[SchemaOp], value: SSAValue, key: str) -> SSAValue:
            return emit(rw, cls.make(value, rw.weight(key), result_types=[made]))

        zero = rw.weights.derive(
            "zero-of-affine", [match.shift, match.scale], negated=match.is_padded
        )
        if match.is_padded:
            moved = of(aten.AddTensor, match.source, zero)
            kept = emit(rw, aten.ReluDefault.make(moved, result_types=[made]))
            rw.replace(match.op, [of(aten.MulTensor, kept, match.scale)])
            return
        kept = of(aten.MaximumDefault, match.source, zero)
        scaled = of(aten.MulTensor, kept, match.scale)
        rw.replace(match.op, [of(aten.AddTensor, scaled, match.shift)])
