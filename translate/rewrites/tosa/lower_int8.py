"""Quantised layers to integer TOSA: int32 accumulators, then one RESCALE to the result's scale.

A layer whose operands are dequantised and whose result is quantised is computed on the stored
integers; clamps between are folded into the quantised range.  Activations of 16 bits have
accumulators of 48 and 16-bit multipliers (the extension `int16`).

Before:
    func.func @forward(%x: tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2x3x!quant.uniform<i8:f32, 2.0:-1>> {
      %w = stepwell.weight <"w"> "parameter" : tensor<3x4xi8>
      %t = quant.scast %w : tensor<3x4xi8> to tensor<3x4x!quant.uniform<i8:f32, 0.25>>
      %a = quant.dcast %x : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x4xf32>
      %b = quant.dcast %t : tensor<3x4x!quant.uniform<i8:f32, 0.25>> to tensor<3x4xf32>
      %l = aten.linear.default(%a, %b) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
      %y = quant.qcast %l : tensor<2x3xf32> to tensor<2x3x!quant.uniform<i8:f32, 2.0:-1>>
      func.return %y : tensor<2x3x!quant.uniform<i8:f32, 2.0:-1>>
    }
After:
    func.func @forward(%x: tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2x3x!quant.uniform<i8:f32, 2.0:-1>> {
      %0 = quant.scast %x : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x4xi8>
      %1 = tosa.const_shape {values = dense<[2, 1, 1, 4]> : tensor<4xindex>} : () -> !tosa.shape<4>
      %2 = tosa.reshape %0, %1 : (tensor<2x4xi8>, !tosa.shape<4>) -> tensor<2x1x1x4xi8>
      %3 = stepwell.weight <"w#tosa_reshape.38d5a8e9c62c"> "constant" : tensor<3x1x1x4xi8>
      %4 = stepwell.weight <"constant#174905601033"> "constant" : tensor<1xi32>
      %5 = stepwell.weight <"constant#38ea739e07b0"> "constant" : tensor<1xi8>
      %6 = stepwell.weight <"constant#fbc34303c9d3"> "constant" : tensor<1xi8>
      %7 = tosa.conv2d %2, %3, %4, %5, %6 {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<2x1x1x4xi8>, tensor<3x1x1x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<2x1x1x3xi32>
      %8 = stepwell.weight <"constant#949d05302669"> "constant" : tensor<1xi32>
      %9 = stepwell.weight <"constant#57abbae0127b"> "constant" : tensor<1xi8>
      %10 = stepwell.weight <"constant#174905601033"> "constant" : tensor<1xi32>
      %11 = stepwell.weight <"constant#6d7c621fee7e"> "constant" : tensor<1xi8>
      %12 = tosa.rescale %7, %8, %9, %10, %11 {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x1x1x3xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<2x1x1x3xi8>
      %13 = tosa.const_shape {values = dense<[2, 3]> : tensor<2xindex>} : () -> !tosa.shape<2>
      %14 = tosa.reshape %12, %13 : (tensor<2x1x1x3xi8>, !tosa.shape<2>) -> tensor<2x3xi8>
      %y = quant.scast %14 : tensor<2x3xi8> to tensor<2x3x!quant.uniform<i8:f32, 2.0:-1>>
      func.return %y : tensor<2x3x!quant.uniform<i8:f32, 2.0:-1>>
    }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import DequantizeCast, QuantizeCast, StorageCast
from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.codes import i48
from stepwell.dialects.tosa.constants import const, const_of_key
from stepwell.ir.dtypes import i8, i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import tensor
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.cmsis.quantized import (
    Activation,
    Bias,
    Use,
    activation,
    clamp_bounds,
    integer_bias,
    narrowed,
    not_signed,
)
from stepwell.translate.rewrites.cmsis.tabulate import Chain, Tabulate, is_one_element, table_of
from stepwell.translate.rewrites.tosa.building import Builder, Size, elements, i64s, shape_of
from stepwell.translate.rewrites.tosa.convolving import TO_NCHW, TO_NHWC, convolved, slices_of
from stepwell.translate.rewrites.tosa.integers import (
    IN_UNITS,
    LEFT_SHIFT,
    WIDTHS,
    LowerInt8,
    Quantised,
    rescale,
    stored,
    width,
)
from stepwell.translate.rewrites.tosa.lower_elementwise import clamp
from stepwell.translate.rewrites.tosa.lower_reductions import is_image_mean, pool_window


def _accumulator_scales(match: Quantised) -> list[float]:
    assert match.weight is not None
    given = match.inputs[0].held.scale
    return [given * scale for scale in match.weight.held.scales]


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


def _zero_points(held: Quantization, b: Builder) -> list[SSAValue]:
    return [b.number(held.zero_point, 1, WIDTHS[held.bits]), b.zero(i8)]


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
    """`convolution` of lines or images to CONV2D, DEPTHWISE_CONV2D or TRANSPOSE_CONV2D, RESCALE."""

    name: ClassVar[str] = "lower-int8-convolution"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ConvolutionDefault,)
    has_weight: ClassVar[bool] = True

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Lines or images; a transposed one without dilation."""
        if len(shape_of(op.operands[0])) not in (3, 4):
            return Refusal("its input is not a batch of images or lines")
        if op.arg("transposed") and any(d != 1 for d in op.arg("dilation")):
            return Refusal("dilation is not 1; TRANSPOSE_CONV2D has none")
        return None

    def output_axis(self, op: SchemaOp) -> int:
        """A transposed convolution has its weight as `[in, out / groups, …]`."""
        return int(op.arg("transposed"))

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """Transpose in, convolve and rescale each group, transpose out."""
        assert match.weight is not None
        op, x = match.op, match.inputs[0]
        count, scales = slices_of(op), _accumulator_scales(match)

        def convolve(
            operator: type[TosaOp],
            image: SSAValue,
            kernel: SSAValue,
            shape: Sequence[Size],
            group: int,
            **lists: Sequence[int],
        ) -> SSAValue:
            own = scales if op.arg("transposed") else _slice(scales, group, count)
            channels = shape_of(op.results[0])[1] // count
            bias = _bias_slice(match.bias, group, count, program)
            y = b.op(
                operator,
                [image, kernel, _bias(bias, own, channels, match, b), *_zero_points(x.held, b)],
                shape,
                match.sums,
                acc_type=match.sums,
                **{name: i64s(values) for name, values in lists.items()},
            )
            return _to_result(y, own, match, use, b)

        return convolved(op, stored(x.value, b), b.weight(match.weight.key), convolve, b)


@dataclass(frozen=True)
class LowerInt8Linear(LowerInt8):
    """`linear` to a CONV2D with a kernel of 1 by 1, which adds the bias, then RESCALE."""

    name: ClassVar[str] = "lower-int8-linear"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.LinearDefault,)
    has_weight: ClassVar[bool] = True

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """Rows as pixels of an image."""
        assert match.weight is not None
        x, shape = match.inputs[0], shape_of(match.op.operands[0])
        out, depth = shape_of(match.op.operands[1])
        rows = elements(shape) // depth
        image = b.reshape(stored(x.value, b), (rows, 1, 1, depth))
        kernel = b.reshape(b.weight(match.weight.key), (out, 1, 1, depth))
        scales = _accumulator_scales(match)
        bias = _bias(match.bias, scales, out, match, b)
        operands = [image, kernel, bias, *_zero_points(x.held, b)]
        lists = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
        y = b.op(
            t.Conv2dOp,
            operands,
            (rows, 1, 1, out),
            match.sums,
            acc_type=match.sums,
            **{name: i64s(values) for name, values in lists.items()},
        )
        return b.reshape(_to_result(y, scales, match, use, b), shape_of(match.op.results[0]))


@dataclass(frozen=True)
class LowerInt8Add(LowerInt8):
    """`add`, `sub`: both operands to int32 at a common scale, the sum, and one RESCALE."""

    name: ClassVar[str] = "lower-int8-add"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.AddTensor, aten.SubTensor)
    activations: ClassVar[int] = 2

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """A plain sum of operands of one rank."""
        if op.arg("alpha") != 1:
            return Refusal(f"alpha is {op.arg('alpha')}, not 1")
        return of_one_value(op)

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """Twice the larger scale leaves room for the sum."""
        common = 2 * max(x.held.scale for x in match.inputs)
        gain = float(1 << LEFT_SHIFT[match.inputs[0].held.bits])
        first, second = (
            rescale(
                stored(x.value, b), [gain * x.held.scale / common], i32, x.held.zero_point, 0, b
            )
            for x in match.inputs
        )
        cls = t.AddOp if isinstance(match.op, aten.AddTensor) else t.SubOp
        total = b.binary(cls, first, second)
        back = common / (gain * use.held.scale)
        return rescale(total, [back], match.held, 0, use.held.zero_point, b)


@dataclass(frozen=True)
class LowerInt8Mul(LowerInt8):
    """`mul`: both operands in int32 without zero points, the product, and one RESCALE.

    MUL takes integers of 8 and 16 bits as they are where neither has a zero point.
    """

    name: ClassVar[str] = "lower-int8-mul"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.MulTensor,)
    activations: ClassVar[int] = 2

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """A product of two values."""
        return of_one_value(op)

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """At most 2^30 for 16-bit operands."""
        first, second = (stored(x.value, b) for x in match.inputs)
        if any(x.held.zero_point for x in match.inputs):
            zeros = [x.held.zero_point for x in match.inputs]
            first, second = (
                rescale(value, [1.0], i32, zero, 0, b)
                for value, zero in zip((first, second), zeros, strict=True)
            )
        factor = match.inputs[0].held.scale * match.inputs[1].held.scale / use.held.scale
        product = b.binary(t.MulOp, first, second, i32)
        return rescale(product, [factor], match.held, 0, use.held.zero_point, b)


def of_one_value(op: SchemaOp) -> Refusal | None:
    """Whether an op of 8-bit values reads one alone, beside constants of one element."""
    read = {value.owner.input for value in op.operands if isinstance(value.owner, DequantizeCast)}
    read = {value for value in read if not is_one_element(value)}
    shapes = [shape_of(value) for value in read]
    if width(op.operands[0]) == 8 and shapes == [shape_of(op.results[0])]:
        return Refusal("it is a function of one value, which a TABLE computes")
    return None


@dataclass(frozen=True)
class LowerInt8Bmm(LowerInt8):
    """`bmm` of two computed values to MATMUL, which takes the zero points, then RESCALE."""

    name: ClassVar[str] = "lower-int8-bmm"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.BmmDefault,)
    activations: ClassVar[int] = 2

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """One MATMUL."""
        left, right = match.inputs
        zeros = [b.number(x.held.zero_point, 1, match.held) for x in match.inputs]
        operands = [stored(left.value, b), stored(right.value, b), *zeros]
        y = b.op(t.MatMulOp, operands, shape_of(match.op.results[0]), match.sums)
        factor = left.held.scale * right.held.scale / use.held.scale
        return rescale(y, [factor], match.held, 0, use.held.zero_point, b)


@dataclass(frozen=True)
class LowerInt8Pool(LowerInt8):
    """Averages of an image to AVG_POOL2D, and a RESCALE where the scale changes; MAX_POOL2D."""

    name: ClassVar[str] = "lower-int8-pool"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.AvgPool2dDefault,
        aten.MaxPool2dDefault,
        aten.MeanDim,
    )

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """A whole plane, or windows that TOSA's pools have."""
        if isinstance(op, aten.MeanDim):
            shape = shape_of(op.operands[0])
            axes = sorted(axis % len(shape) for axis in op.arg("dim") or range(len(shape)))
            return (
                None
                if is_image_mean(shape, axes)
                else Refusal(
                    "the mean is not over the height and width of images that a pool holds"
                )
            )
        found = pool_window(op)
        return found if isinstance(found, Refusal) else None

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """The pool on integers; zero points are subtracted and added by the operators."""
        op, x = match.op, match.inputs[0]
        image = b.transpose(stored(x.value, b), TO_NHWC)
        n, height, width, channels = shape_of(image)
        if isinstance(op, aten.MeanDim):
            kernel, stride, pad = (height, width), (1, 1), (0, 0, 0, 0)
            size: Sequence[int] = (1, 1)
        else:
            found = pool_window(op)
            assert not isinstance(found, Refusal)
            kernel, stride, pad = found
            size = shape_of(op.results[0])[2:]
        lists = {"kernel": i64s(kernel), "stride": i64s(stride), "pad": i64s(pad)}
        shape = (n, *size, channels)
        whole = list(kernel) == [height, width] and not any(pad)
        same = x.held.scale == use.held.scale and x.held.zero_point == use.held.zero_point
        if whole and not same and not isinstance(op, aten.MaxPool2dDefault):
            y = _whole_mean(image, x.held, use.held, b)
        elif isinstance(op, aten.MaxPool2dDefault):
            y = b.op(t.MaxPool2dOp, [image], shape, match.held, **lists)
        else:
            zero = b.number(x.held.zero_point, 1, match.held)
            y = b.op(t.AvgPool2dOp, [image, zero, zero], shape, match.held, acc_type=i32, **lists)
        if not same and not (whole and is_mean(op)):
            factor = x.held.scale / use.held.scale
            y = rescale(y, [factor], match.held, x.held.zero_point, use.held.zero_point, b)
        return b.reshape(b.transpose(y, TO_NCHW), shape_of(op.results[0]))


def is_mean(op: SchemaOp) -> bool:
    """Whether a pool averages."""
    return not isinstance(op, aten.MaxPool2dDefault)


def _whole_mean(image: SSAValue, given: Quantization, result: Quantization, b: Builder) -> SSAValue:
    """The mean of a whole plane, rounded once: the sum in int32, divided by the RESCALE."""
    _, height, width, _ = shape_of(image)
    wide = rescale(image, [1.0], i32, given.zero_point, 0, b)
    total = b.reduce(t.ReduceSumOp, b.reduce(t.ReduceSumOp, wide, 1), 2)
    factor = given.scale / (height * width * result.scale)
    return rescale(total, [factor], WIDTHS[result.bits], 0, result.zero_point, b)


@dataclass(frozen=True)
class LowerInt8Clamp(LowerInt8):
    """A clamp of a quantised value to CLAMP on its integers, after a RESCALE to a new scale."""

    name: ClassVar[str] = "lower-int8-clamp"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ClampDefault,)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Bounds that are numbers."""
        return Refusal("a bound is computed at run time") if clamp_bounds(op) is None else None

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """The clamp in the result's integers: quantising is monotone."""
        bounds = clamp_bounds(match.op)
        assert bounds is not None
        x = match.inputs[0]
        value = requantised(stored(x.value, b), x.held, use.held, b)
        low, high = narrowed(use.held, (bounds,))
        held = (use.held.low, use.held.high)
        return value if (low, high) == held else clamp(value, low, high, b)


def requantised(value: SSAValue, given: Quantization, held: Quantization, b: Builder) -> SSAValue:
    """Stored integers at another scale."""
    if (given.scale, given.zero_point) == (held.scale, held.zero_point):
        return value
    target, factor = WIDTHS[held.bits], given.scale / held.scale
    return rescale(value, [factor], target, given.zero_point, held.zero_point, b)


@dataclass(frozen=True)
class Requantised:
    """A cast of a dequantised value to another scale."""

    cast: QuantizeCast
    value: Activation
    held: Quantization


@dataclass(frozen=True)
class LowerInt8Requantise(Rewrite[Requantised]):
    """`qcast(dcast(x))` to RESCALE."""

    name: ClassVar[str] = "lower-int8-requantise"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizeCast,)
    bound: ClassVar[Bound] = IN_UNITS

    def match(self, op: QuantizeCast, program: Program) -> Requantised | Refusal | None:
        """Both sides int8 or int16."""
        if not isinstance(op.input.owner, DequantizeCast):
            return None
        found = activation(op.input, width(op.input))
        if isinstance(found, Refusal):
            return found
        held = quantization(op.result.type)
        assert held is not None
        reason = not_signed(held, 16 if held.bits == 16 else 8)
        if reason is not None:
            return Refusal(f"its result is quantised {reason}")
        return Requantised(op, found, held)

    def build(self, match: Requantised, rw: Rewriter) -> None:
        """One RESCALE."""
        b = Builder(rw)
        given = match.value
        value = requantised(stored(given.value, b), given.held, match.held, b)
        rw.replace(match.cast, rw.insert(StorageCast(value, match.cast.result.type)).results)


@dataclass(frozen=True)
class LowerInt8Function(Rewrite[Chain]):
    """Any function of one int8 value alone to a TABLE of what the float ops give, bit for bit."""

    name: ClassVar[str] = "lower-int8-function"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizeCast,)

    def match(self, op: QuantizeCast, program: Program) -> Chain | Refusal | None:
        """A chain of elementwise ops between casts; casts alone are a RESCALE."""
        if isinstance(op.input.owner, DequantizeCast):
            return None
        return Tabulate().match(op, program)

    def build(self, match: Chain, rw: Rewriter) -> None:
        """One TABLE."""
        b = Builder(rw)
        value = stored(match.source, b)
        entries = b.constant(table_of(match, rw.program))
        y = b.op(t.TableOp, [value, entries], shape_of(value), i8)
        rw.replace(match.cast, rw.insert(StorageCast(y, match.cast.result.type)).results)


INT8: tuple[Rewrite[Any], ...] = (
    LowerInt8Convolution(),
    LowerInt8Linear(),
    LowerInt8Add(),
    LowerInt8Mul(),
    LowerInt8Bmm(),
    LowerInt8Pool(),
    LowerInt8Clamp(),
    LowerInt8Requantise(),
    LowerInt8Function(),
)
"""Every integer lowering."""
