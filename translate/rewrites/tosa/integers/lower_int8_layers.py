"""Quantised products to integer TOSA: int32 accumulators, then one RESCALE to the result's scale.

A layer whose operands are dequantised and whose result is quantised is computed on the stored
integers; clamps between are folded into the quantised range.  Activations of 16 bits have
accumulators of 48 and 16-bit multipliers (the extension `int16`).

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xi8>
    %t = quant.scast %w : tensor<3x4xi8> to tensor<3x4x!quant.uniform<i8:f32, 0.25>>
    %a = quant.dcast %x : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x4xf32>
    %b = quant.dcast %t : tensor<3x4x!quant.uniform<i8:f32, 0.25>> to tensor<3x4xf32>
    %l = aten.linear.default(%a, %b) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
    %y = quant.qcast %l : tensor<2x3xf32> to tensor<2x3x!quant.uniform<i8:f32, 2.0:-1>>
After:
    %0 = quant.scast %x : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x4xi8>
    %1 = tosa.const_shape {values = dense<[2, 1, 1, 4]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %2 = tosa.reshape %0, %1 : (tensor<2x4xi8>, !tosa.shape<4>) -> tensor<2x1x1x4xi8>
    %3 = stepwell.weight <"w#tosa_reshape.38d5a8e9c62c"> "constant" : tensor<3x1x1x4xi8>
    %4 = tosa.conv2d %2, %3, dense<0>, dense<3>, dense<0> {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x1x1x4xi8>, tensor<3x1x1x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<2x1x1x3xi32>
    %5 = tosa.rescale %4, dense<1073741824>, dense<34>, dense<0>, dense<-1> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x1x1x3xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<2x1x1x3xi8>
    %6 = tosa.const_shape {values = dense<[2, 3]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %7 = tosa.reshape %5, %6 : (tensor<2x1x1x3xi8>, !tosa.shape<2>) -> tensor<2x3xi8>
    %y = quant.scast %7 : tensor<2x3xi8> to tensor<2x3x!quant.uniform<i8:f32, 2.0:-1>>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.codes import i48
from stepwell.dialects.tosa.constants import const, const_of_key
from stepwell.ir.dtypes import i8
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.ir.types import tensor
from stepwell.ir.weights import recipe
from stepwell.translate.quantised.recognise import Bias, Use, integer_bias
from stepwell.translate.rewrites.tosa.integers.integers import (
    WIDTHS,
    LowerInt8,
    Quantised,
    rescale,
    stored,
)
from stepwell.translate.rewrites.tosa.operators.building import Builder, elements, i64s, shape_of
from stepwell.translate.rewrites.tosa.operators.convolving import (
    Placed,
    convolved,
    slices_of,
)
from stepwell.translate.rewrites.tosa.operators.volumes import convolved_volume

Rows = Literal["batch", "height", "width"]
"""What the rows of a linear layer are to a convolution."""


def _accumulator_scales(match: Quantised) -> list[float]:
    assert match.weight is not None
    given = match.inputs[0].held.scale
    return [given * scale for scale in match.weight.held.scales]


def _factors(match: Quantised, use: Use, depth: int) -> list[tuple[float, float]]:
    """From accumulators of `depth` products, which a bias may take to the ends of 32 bits."""
    held = match.inputs[0].held
    products = depth * float(1 << (2 * held.bits - 1))
    reach = products if match.sums == i48 else min(products, 2.0**31 - 1)
    if match.bias is not None and match.sums != i48:
        reach = 2.0**31 - 1
    return [(max(_accumulator_scales(match)) / use.held.scale, reach)]


def _bias(
    bias: Bias | None, scales: Sequence[float], channels: int, match: Quantised, b: Builder
) -> SSAValue:
    """A bias at the accumulators' scales, one for each channel; [0] where there is none."""
    if match.sums == i48:
        return _wide_bias(bias, scales, channels, b)
    key = integer_bias(bias, scales, channels, b.rw.program)
    return b.weight(key) if key is not None else b.constant(torch.zeros(1, dtype=torch.int32))


@recipe("tosa_bias48")
def tosa_bias48(
    bias: torch.Tensor, *, scales: Sequence[float], unit: Sequence[float] | None
) -> torch.Tensor:
    """A bias at the accumulators' scales, in integers of up to 48 bits."""
    reals = (
        bias.double()
        if unit is None
        else bias.double() * torch.tensor(unit, device=bias.device).double()
    )
    return torch.round(reals / torch.tensor(scales, dtype=torch.float64, device=bias.device)).to(
        torch.int64
    )


def _wide_bias(bias: Bias | None, scales: Sequence[float], channels: int, b: Builder) -> SSAValue:
    if bias is None:
        return b.rw.insert(const(torch.zeros(1), i48)).results[0]
    unit = None if bias.unit is None else list(bias.unit)
    key = b.rw.weights.derive("tosa_bias48", [bias.key], scales=list(scales), unit=unit)
    return b.rw.insert(const_of_key(key, tensor([channels], i48))).results[0]


def _summed(placed: Placed, bias: SSAValue, match: Quantised, b: Builder) -> SSAValue:
    """The sums of one operator, in the accumulators' type."""
    held = match.inputs[0].held
    zeros = [b.number(held.zero_point, 1, WIDTHS[held.bits]), b.zero(i8)]
    return b.op(
        placed.operator,
        [placed.image, placed.kernel, bias, *zeros],
        placed.shape,
        match.sums,
        acc_type=match.sums,
        **{name: i64s(values) for name, values in placed.lists.items()},
    )


def _to_result(
    y: SSAValue, scales: Sequence[float], match: Quantised, use: Use, b: Builder
) -> SSAValue:
    """Accumulators of these scales at the result's."""
    factors = [scale / use.held.scale for scale in scales]
    return rescale(y, factors, match.held, 0, use.held.zero_point, b)


def _slice(held: Sequence[float], index: int, count: int) -> list[float]:
    """One of `count` equal parts of what each channel has; what all share is shared."""
    size = len(held) // count if len(held) > 1 else 0
    return list(held[index * size : (index + 1) * size]) if size else list(held)


def _bias_slice(bias: Bias | None, index: int, count: int, program: Program) -> Bias | None:
    if bias is None or count == 1:
        return bias
    (channels,) = program.weights.type_of(bias.key).get_shape()
    size = channels // count
    key = program.weights.derive("tosa_slice", [bias.key], axis=0, start=index * size, size=size)
    return Bias(key, None if bias.unit is None else tuple(_slice(bias.unit, index, count)))


@dataclass(frozen=True)
class LowerInt8Convolution(LowerInt8):
    """`convolution` to CONV2D, DEPTHWISE_CONV2D, CONV3D or TRANSPOSE_CONV2D, then RESCALE."""

    name: ClassVar[str] = "lower-int8-convolution"
    takes_symbols: ClassVar[bool] = True
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ConvolutionDefault,)
    has_weight: ClassVar[bool] = True

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Lines, images, volumes; a transposed one without dilation, and not of volumes."""
        axes = len(shape_of(op.operands[0])) - 2
        if not 1 <= axes <= 3:
            return Refusal("its input is not a batch of lines, images or volumes")
        if op.arg("transposed") and axes == 3:
            return Refusal("TOSA has no transposed convolution of three axes")
        if op.arg("transposed") and any(d != 1 for d in op.arg("dilation")):
            return Refusal("dilation is not 1; TRANSPOSE_CONV2D has none")
        return None

    def factors(self, match: Quantised, use: Use) -> list[tuple[float, float]]:
        """Of the sums over a window."""
        kernel = shape_of(match.op.operands[1])
        depth = elements(kernel) // max(kernel[self.output_axis(match.op)], 1)
        return _factors(match, use, depth)

    def output_axis(self, op: SchemaOp) -> int:
        """A transposed convolution has its weight as `[in, out / groups, …]`."""
        return int(op.arg("transposed"))

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """Transpose in, convolve and rescale each group, transpose out."""
        assert match.weight is not None
        op, x = match.op, match.inputs[0]
        is_volume, scales = len(shape_of(op.operands[0])) == 5, _accumulator_scales(match)
        count = op.arg("groups") if is_volume else slices_of(op)

        def convolve(placed: Placed) -> SSAValue:
            own = scales if op.arg("transposed") else _slice(scales, placed.group, count)
            channels = shape_of(op.results[0])[1] // count
            bias = _bias_slice(match.bias, placed.group, count, program)
            y = _summed(placed, _bias(bias, own, channels, match, b), match, b)
            return _to_result(y, own, match, use, b)

        write = convolved_volume if is_volume else convolved
        key, zero = match.weight.key, x.held.zero_point
        return write(op, stored(x.value, b), b.weight(key), convolve, b, zero)


@dataclass(frozen=True)
class LowerInt8Linear(LowerInt8):
    """`linear` to a CONV2D with a kernel of 1 by 1, which adds the bias, then RESCALE.

    Attributes:
        rows: what rows are: a `batch` of images of one element, or the `height` or `width` of one
            image.
    """

    rows: Rows = "batch"
    name: ClassVar[str] = "lower-int8-linear"
    takes_symbols: ClassVar[bool] = True
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.LinearDefault,)
    has_weight: ClassVar[bool] = True

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """A weight `[out, in]`."""
        if len(shape_of(op.operands[1])) != 2:
            return Refusal("its weight is one row, so that there is no axis of outputs")
        return None

    def factors(self, match: Quantised, use: Use) -> list[tuple[float, float]]:
        """Of the sums over a row."""
        return _factors(match, use, shape_of(match.op.operands[1])[1])

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """Rows as pixels of an image."""
        assert match.weight is not None
        x, shape = match.inputs[0], shape_of(match.op.operands[0])
        out, depth = shape_of(match.op.operands[1])
        rows = elements(shape) // depth
        places = {"batch": (rows, 1, 1), "height": (1, rows, 1), "width": (1, 1, rows)}[self.rows]
        image = b.reshape(stored(x.value, b), (*places, depth))
        kernel = b.reshape(b.weight(match.weight.key), (out, 1, 1, depth))
        scales = _accumulator_scales(match)
        bias = _bias(match.bias, scales, out, match, b)
        lists = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
        y = _summed(Placed(t.Conv2dOp, image, kernel, (*places, out), lists), bias, match, b)
        return b.reshape(_to_result(y, scales, match, use, b), shape_of(match.op.results[0]))


@dataclass(frozen=True)
class LowerInt8Bmm(LowerInt8):
    """`bmm` of two computed values to MATMUL, which takes the zero points, then RESCALE."""

    name: ClassVar[str] = "lower-int8-bmm"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.BmmDefault,)
    activations: ClassVar[int] = 2

    def factors(self, match: Quantised, use: Use) -> list[tuple[float, float]]:
        """Of the sums over the axis that both share."""
        left, right = (x.held for x in match.inputs)
        depth = shape_of(match.op.operands[0])[-1]
        reach = min(depth * float(1 << (2 * left.bits)), 2.0**31 - 1 if left.bits == 8 else 2.0**47)
        return [(left.scale * right.scale / use.held.scale, reach)]

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """One MATMUL."""
        left, right = match.inputs
        zeros = [b.number(x.held.zero_point, 1, match.held) for x in match.inputs]
        operands = [stored(left.value, b), stored(right.value, b), *zeros]
        y = b.op(t.MatMulOp, operands, shape_of(match.op.results[0]), match.sums)
        ((factor, _),) = self.factors(match, use)
        return rescale(y, [factor], match.held, 0, use.held.zero_point, b)
