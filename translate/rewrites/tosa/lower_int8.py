"""Quantised layers to integer TOSA: int32 accumulators, then one RESCALE to the result's scale.

A layer whose operands are dequantised and whose result is quantised is computed on the stored
integers; clamps between are folded into the quantised range.

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

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import DequantizeCast, QuantizeCast, StorageCast
from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import RoundingModeAttr
from stepwell.ir.dtypes import i1, i8, i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, is_static, tensor
from stepwell.translate.rewrites.cmsis.quantized import (
    Activation,
    Bias,
    Use,
    Weight,
    activation,
    bias_operand,
    clamp_bounds,
    deliver,
    distinct,
    integer_bias,
    narrowed,
    not_int8,
    quantized_uses,
    stored_weight,
)
from stepwell.translate.rewrites.tosa.building import Builder, accumulator, elements, i64s, shape_of
from stepwell.translate.rewrites.tosa.lower_elementwise import clamp
from stepwell.translate.rewrites.tosa.lower_products import TO_NCHW, TO_NHWC, plan_convolution
from stepwell.translate.rewrites.tosa.lower_reductions import is_image_mean, pool_window

LEFT_SHIFT = 20
"""Bits that sums of two int8 operands gain in front of their common scale."""

SINGLE_ROUND = RoundingModeAttr("SINGLE_ROUND")
IN_UNITS = Bound(absolute=1.0, reason="fixed-point scales round once, half up, in units")


@dataclass(frozen=True)
class Quantised:
    """A layer, its int8 operands, its constant weight and bias, and the uses of its result."""

    op: SchemaOp
    inputs: tuple[Activation, ...]
    uses: tuple[Use, ...]
    weight: Weight | None = None
    bias: Bias | None = None


@dataclass(frozen=True)
class LowerInt8(Rewrite[Quantised]):
    """Base: operands dequantised, every use quantised, shapes static."""

    bound: ClassVar[Bound] = IN_UNITS
    activations: ClassVar[int] = 1
    has_weight: ClassVar[bool] = False

    def match(self, op: SchemaOp, program: Program) -> Quantised | Refusal | None:
        """The layer's parts, or the first that is missing."""
        inputs: list[Activation] = []
        for value in op.operands[: self.activations]:
            found = activation(value)
            if isinstance(found, Refusal):
                return found
            inputs.append(found)
        uses = quantized_uses(op.results[0])
        if isinstance(uses, Refusal):
            return uses
        if not all(is_static(v.type) for v in (*op.operands, *op.results)):
            return Refusal("the shape is symbolic")
        refusal = self.refuses(op)
        if refusal is not None:
            return refusal
        if not self.has_weight:
            return Quantised(op, tuple(inputs), uses)
        weight = stored_weight(op.operands[1])
        if isinstance(weight, Refusal):
            return weight
        if any(weight.held.zero_points):
            return Refusal("its weight has a zero point")
        if weight.held.axis not in (None, 0):
            return Refusal("its weight has a scale for each input, not for each output")
        bias = bias_operand(op.operand("bias"))
        if isinstance(bias, Refusal):
            return bias
        return Quantised(op, tuple(inputs), uses, weight, bias)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Why this layer has no integer form, or None."""
        return None

    @abstractmethod
    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """The int8 result for one quantisation of it."""

    def build(self, match: Quantised, rw: Rewriter) -> None:
        """One chain of operators for each distinct quantisation of the result."""
        b = Builder(rw)
        for use, group in distinct(match.uses):
            value = self.lower(match, use, b, rw.program)
            if (use.low, use.high) != (-128, 127):
                value = clamp(value, use.low, use.high, b)
            typed = rw.insert(StorageCast(value, use.type)).results[0]
            deliver(rw, group, typed)


def stored(value: SSAValue, b: Builder) -> SSAValue:
    """The integers of a quantised value."""
    plain = tensor(dims(value.type), i8)
    return b.rw.insert(StorageCast(value, plain)).results[0]


def fixed_point(scale: float) -> tuple[int, int]:
    """Multiplier in [2**30, 2**31) and shift in [2, 62] of a factor, as RESCALE takes them."""
    mantissa, exponent = math.frexp(scale)
    multiplier = round(mantissa * (1 << 31))
    if multiplier == 1 << 31:
        multiplier, exponent = multiplier // 2, exponent + 1
    shift = 31 - exponent
    if shift > 62:
        multiplier, shift = multiplier >> min(31, shift - 62), 62
    return multiplier, shift


def is_representable(scale: float) -> bool:
    """Whether RESCALE's shift reaches a factor."""
    return fixed_point(scale)[1] >= 2


def rescale(
    value: SSAValue,
    scales: Sequence[float],
    target: Attribute,
    input_zp: int,
    output_zp: int,
    b: Builder,
) -> SSAValue:
    """RESCALE by one factor, or one for each element of the last axis."""
    found = [fixed_point(scale) for scale in scales]
    source = element(value.type)
    operands = [
        value,
        b.constant(torch.tensor([m for m, _ in found], dtype=torch.int32)),
        b.constant(torch.tensor([s for _, s in found], dtype=torch.int8)),
        b.number(input_zp, 1, source),
        b.number(output_zp, 1, target),
    ]
    flags = {
        "scale32": True,
        "per_channel": len(scales) > 1,
        "input_unsigned": False,
        "output_unsigned": False,
    }
    return b.op(
        t.RescaleOp,
        operands,
        shape_of(value),
        target,
        rounding_mode=SINGLE_ROUND,
        **{name: IntegerAttr(int(flag), i1) for name, flag in flags.items()},
    )


def _accumulator_scales(match: Quantised) -> list[float]:
    assert match.weight is not None
    return [match.inputs[0].held.scale * scale for scale in match.weight.held.scales]


def _bias(match: Quantised, channels: int, b: Builder, program: Program) -> SSAValue:
    key = integer_bias(match.bias, _accumulator_scales(match), channels, program)
    return b.weight(key) if key is not None else b.constant(torch.zeros(1, dtype=torch.int32))


def _zero_points(held: Quantization, b: Builder) -> list[SSAValue]:
    return [b.number(held.zero_point, 1, i8), b.zero(i8)]


def _to_result(y: SSAValue, match: Quantised, use: Use, b: Builder) -> SSAValue:
    scales = [scale / use.held.scale for scale in _accumulator_scales(match)]
    return rescale(y, scales, i8, 0, use.held.zero_point, b)


@dataclass(frozen=True)
class LowerInt8Convolution(LowerInt8):
    """`convolution` of one or all groups' width to CONV2D or DEPTHWISE_CONV2D, then RESCALE."""

    name: ClassVar[str] = "lower-int8-convolution"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ConvolutionDefault,)
    has_weight: ClassVar[bool] = True

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """An image, not transposed; dense or depthwise."""
        if op.arg("transposed") or len(shape_of(op.operands[0])) != 4:
            return Refusal("a transposed or one-dimensional convolution")
        if op.arg("groups") != 1 and shape_of(op.operands[1])[1] != 1:
            return Refusal("a grouped convolution that is not depthwise")
        return None

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """Transpose in, convolve, rescale, transpose out."""
        assert match.weight is not None
        op, x = match.op, match.inputs[0]
        out = shape_of(op.operands[1])[0]
        image = b.transpose(stored(x.value, b), TO_NHWC)
        weight = b.weight(match.weight.key)
        plan = plan_convolution(op, image, weight, b)
        operands = [plan.image, plan.kernel, _bias(match, out, b, program)]
        y = b.op(
            plan.operator,
            [*operands, *_zero_points(x.held, b)],
            plan.shape,
            i32,
            acc_type=accumulator(i8),
            **{name: i64s(values) for name, values in plan.lists.items()},
        )
        return b.transpose(_to_result(y, match, use, b), TO_NCHW)


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
        operands = [image, kernel, _bias(match, out, b, program), *_zero_points(x.held, b)]
        lists = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
        y = b.op(
            t.Conv2dOp,
            operands,
            (rows, 1, 1, out),
            i32,
            acc_type=accumulator(i8),
            **{name: i64s(values) for name, values in lists.items()},
        )
        return b.reshape(_to_result(y, match, use, b), shape_of(match.op.results[0]))


@dataclass(frozen=True)
class LowerInt8Add(LowerInt8):
    """`add`: both operands to int32 at a common scale, the sum, and one RESCALE."""

    name: ClassVar[str] = "lower-int8-add"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.AddTensor,)
    activations: ClassVar[int] = 2

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """A plain sum of operands of one rank."""
        if op.arg("alpha") != 1:
            return Refusal(f"alpha is {op.arg('alpha')}")
        return None

    def lower(self, match: Quantised, use: Use, b: Builder, program: Program) -> SSAValue:
        """Twice the larger scale leaves room for the sum."""
        common = 2 * max(x.held.scale for x in match.inputs)
        gain = float(1 << LEFT_SHIFT)
        first, second = (
            rescale(
                stored(x.value, b), [gain * x.held.scale / common], i32, x.held.zero_point, 0, b
            )
            for x in match.inputs
        )
        total = b.binary(t.AddOp, first, second)
        back = common / (gain * use.held.scale)
        return rescale(total, [back], i8, 0, use.held.zero_point, b)


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
            return None if is_image_mean(shape, axes) else Refusal("a mean that is no pool")
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
            y = b.op(t.MaxPool2dOp, [image], shape, i8, **lists)
        else:
            zero = b.number(x.held.zero_point, 1, i8)
            y = b.op(
                t.AvgPool2dOp, [image, zero, zero], shape, i8, acc_type=accumulator(i8), **lists
            )
        if not same and not (whole and is_mean(op)):
            factor = x.held.scale / use.held.scale
            y = rescale(y, [factor], i8, x.held.zero_point, use.held.zero_point, b)
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
    return rescale(total, [factor], i8, 0, result.zero_point, b)


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
        value = requantised(match.inputs[0], use.held, b)
        low, high = narrowed(use.held, (bounds,))
        return value if (low, high) == (-128, 127) else clamp(value, low, high, b)


def requantised(x: Activation, held: Quantization, b: Builder) -> SSAValue:
    """The integers of a value at another scale."""
    value = stored(x.value, b)
    if (x.held.scale, x.held.zero_point) == (held.scale, held.zero_point):
        return value
    return rescale(value, [x.held.scale / held.scale], i8, x.held.zero_point, held.zero_point, b)


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
        """Both sides int8."""
        if not isinstance(op.input.owner, DequantizeCast):
            return None
        found = activation(op.input)
        if isinstance(found, Refusal):
            return found
        held = quantization(op.result.type)
        assert held is not None
        reason = not_int8(held)
        if reason is not None:
            return Refusal(f"its result is quantised {reason}")
        return Requantised(op, found, held)

    def build(self, match: Requantised, rw: Rewriter) -> None:
        """One RESCALE."""
        b = Builder(rw)
        value = requantised(match.value, match.held, b)
        rw.replace(match.cast, rw.insert(StorageCast(value, match.cast.result.type)).results)


INT8: tuple[Rewrite[Any], ...] = (
    LowerInt8Convolution(),
    LowerInt8Linear(),
    LowerInt8Add(),
    LowerInt8Pool(),
    LowerInt8Clamp(),
    LowerInt8Requantise(),
)
"""Every integer lowering."""
