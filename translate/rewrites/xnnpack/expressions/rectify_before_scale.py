"""Rectify before a positive scale, so that the next convolution can absorb scale and shift.

    relu(x * g + b) = max(x, −b/g) * g + b          for g > 0
    relu(x * g + b) = relu(x + b/g) * g

Networks that normalize and rectify before they convolve (DenseNet, ResNet v2) leave such a batch
norm: three passes over the image instead of one. `fold-affine-into-layer` then absorbs the
scale and shift that follow the maximum. A convolution with padding absorbs only the factor, because
a shift would change the padding.

rule rectify-before-scale
    The maximum, then factor and shift.
Before:
    %s = aten.mul.Tensor({%x, %g})
    %a = aten.add.Tensor({%s, %b})
    %y = aten.relu.default(%a) : (…) -> $T
After:
    %z = weight zero-of-affine(%b, %g, negated=false)
    %k = aten.maximum.default(%x, %z) : … -> $T
    %m = aten.mul.Tensor(%k, %g) : … -> $T
    %y = aten.add.Tensor(%m, %b)
where is_of_channels(%s, %a)
where is_of_channels(%x, %s)
where reads_once(%a) for cost else "the scaled value is read before it is rectified too"
where reads_once(%s) for cost else "the scaled value is read before it is rectified too"
where has_quotients(%y) else "integers have no quotient of shift and factor"
unless is_no_input_of_convolutions(%y) for cost
where not pads(%y) for cost
where is_positive_everywhere(%g)
    else "a factor is not positive: what it scales is rectified from above"
where has_finite_quotient(%b, %g) for overflow else "a factor is too small to divide by"
loses REORDERED
bound of roundings: "zeros are −b/g·g + b, which may round"
for %g = weight : tensor<3 x 1 x 1 x f32>
for %b = weight : tensor<3 x 1 x 1 x f32>
for %w = weight : tensor<4 x 3 x 1 x 1 x f32>
for %r = aten.convolution.default(%y, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
for %g = "g#positive", %x = "tensor<1x3x5x5xf32>", $T = "tensor<1x3x5x5xf32>"
not for %b = "tensor<3x1x1xf32>"
not for %g = "tensor<3x1x1xf32>"
not for %g = weight : tensor<3 x 1 x 1 x i32>; %b = weight : tensor<3 x 1 x 1 x i32>;
    %w = weight : tensor<4 x 3 x 1 x 1 x i32>; %x = "tensor<1x3x5x5xi32>",
    $T = "tensor<1x3x5x5xi32>"
not for %r = aten.convolution.default(%y, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
not for %g = "g#negative"
not for %g = "g#tiny"

rule rectify-before-scale-and-padding
    In front of a convolution that pads: shift, rectifier and factor.
Before:
    %s = aten.mul.Tensor({%x, %g})
    %a = aten.add.Tensor({%s, %b})
    %y = aten.relu.default(%a) : (…) -> $T
After:
    %z = weight zero-of-affine(%b, %g, negated=true)
    %m = aten.add.Tensor(%x, %z) : … -> $T
    %k = aten.relu.default(%m) : … -> $T
    %y = aten.mul.Tensor(%k, %g)
where is_of_channels(%s, %a)
where is_of_channels(%x, %s)
where reads_once(%a) for cost else "the scaled value is read before it is rectified too"
where reads_once(%s) for cost else "the scaled value is read before it is rectified too"
where has_quotients(%y) else "integers have no quotient of shift and factor"
unless is_no_input_of_convolutions(%y) for cost
where pads(%y) for cost
where is_positive_everywhere(%g)
    else "a factor is not positive: what it scales is rectified from above"
where has_finite_quotient(%b, %g) for overflow else "a factor is too small to divide by"
loses REORDERED
bound of roundings: "zeros are −b/g·g + b, which may round"
for %g = weight : tensor<3 x 1 x 1 x f32>
for %b = weight : tensor<3 x 1 x 1 x f32>
for %w = weight : tensor<4 x 3 x 1 x 1 x f32>
for %r = aten.convolution.default(%y, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
for %g = "g#positive", %x = "tensor<1x3x5x5xf32>", $T = "tensor<1x3x5x5xf32>"
not for %b = "tensor<3x1x1xf32>"
not for %g = "tensor<3x1x1xf32>"
not for %g = weight : tensor<3 x 1 x 1 x i32>; %g = "g#counted"; %b = weight : tensor<3 x 1 x 1 x i32>;
    %w = weight : tensor<4 x 3 x 1 x 1 x i32>; %x = "tensor<1x3x5x5xi32>",
    $T = "tensor<1x3x5x5xi32>"
not for %r = aten.convolution.default(%y, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
not for %g = "g#negative"
not for %g = "g#tiny"
"""

from __future__ import annotations

from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.declared import numerics
from stepwell.ir.dtypes import is_float
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import element
from stepwell.ir.weights import recipe
from stepwell.translate.rules import read_rules
from stepwell.translate.scale_folding.constants import constant_along
from stepwell.translate.scale_folding.layers import LAYERS

CHANNELS = 1


@recipe("zero-of-affine")
def zero_of_affine(shift: torch.Tensor, scale: torch.Tensor, *, negated: bool) -> torch.Tensor:
    """Return −b/g, where x·g + b is zero, or b/g."""
    ratio = (shift.double() / scale.double()).to(shift.dtype)
    return ratio if negated else -ratio


def is_of_channels(value: SSAValue, made: SSAValue) -> bool:
    """Whether a sum or product has one constant per channel as an operand, and keeps its type."""
    found = constant_along(cast(SchemaOp, made.owner), CHANNELS)
    return found is not None and found[0] is value


def has_quotients(value: SSAValue) -> bool:
    """Whether the tensor has a float type."""
    return is_float(element(value.type))


def is_no_input_of_convolutions(value: SSAValue) -> Refusal | None:
    """Refuse if a reader of the value is not a convolution that absorbs constants."""
    for use in value.uses:
        reader = use.operation
        if not isinstance(reader, aten.ConvolutionDefault) or use.index != 0:
            return Refusal(f"{reader.name} reads the scaled value too: nothing is saved")
        if refusal := LAYERS[type(reader)].refuses_input(reader, shifted=False):
            return refusal
    return None


def pads(value: SSAValue) -> bool:
    """Whether a convolution that reads a value cannot absorb a shift because it pads."""
    readers = [use.operation for use in value.uses]
    return any(
        LAYERS[type(reader)].refuses_input(reader, shifted=True) is not None
        for reader in readers
        if isinstance(reader, aten.ConvolutionDefault)
    )


def is_positive_everywhere(factor: SSAValue, program: Program) -> bool:
    """Whether a weight consists of numbers above zero."""
    return bool((_elements(factor, program) > 0).all())


def has_finite_quotient(shift: SSAValue, factor: SSAValue, program: Program) -> bool:
    """Whether the quotient of two weights is finite."""
    parts = _elements(shift, program), _elements(factor, program)
    return bool(zero_of_affine(*parts, negated=False).isfinite().all())


def _elements(weight: SSAValue, program: Program) -> torch.Tensor:
    key = weight_key(weight)
    assert key is not None
    return program.weights.get(key)


RULES = read_rules(__doc__, vars(numerics) | globals())
