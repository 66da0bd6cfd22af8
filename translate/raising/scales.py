"""Infer the scales of integers in TOSA programs, whose RESCALE states only ratios of scales.

A rescale keeps the real number that an integer represents, and multiplies the integer's unit
(scale) by a factor. All units therefore follow from the units of inputs, which are 1 unless stated,
and from one free unit per layer, that of its weights. The operands of a sum have the same unit.

Before:
    %acc = tosa.conv2d %x, %w, %b, … : (tensor<…xi8>, …) -> tensor<…xi32>
    %y = tosa.rescale %acc, %multipliers, %shifts, … : (tensor<…xi32>, …) -> tensor<…xi8>
After:
    reals: %y = quantize(convolution(dequantize(%x), dequantize(%w, scales), %bias))

All or nothing: a program with an operator that has no such reading (a table, bits) goes up in
integers, as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.quant.ports import INPUT, OUTPUT, meanings
from stepwell.dialects.quant.types import Quantization
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.meaning.values import ints
from stepwell.dialects.tosa.structural import ConstOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.interpretation import Interpreter, rule_for
from stepwell.ir.dtypes import f32, i8, i16, i32
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.sizes.size import number_of
from stepwell.ir.types import dims, element
from stepwell.ir.weights import WeightStore
from stepwell.translate.quantized.untyped import dequantized, quantized

LAYERS = (t.Conv2dOp, t.DepthwiseConv2dOp)
ALIKE = (
    t.AddOp,
    t.SubOp,
    t.ReduceSumOp,
    t.TransposeOp,
    t.ReshapeOp,
    t.ConcatOp,
    t.SliceOp,
    t.MaxPool2dOp,
    t.ReduceMaxOp,
    t.MaximumOp,
    t.MinimumOp,
)
"""Operators whose operands and results have the same unit; a sum's differs by the count."""
SCALED = (*LAYERS, t.RescaleOp, *ALIKE)
_ALIGNED = 2.0**-20
_BITS: dict[Attribute, int] = {i8: 8, i16: 16}


@dataclass
class Scales:
    """Units and zero points of the integers of a method, by value."""

    weights: WeightStore
    units: dict[SSAValue, tuple[SSAValue, float]] = field(
        default_factory=dict[SSAValue, tuple[SSAValue, float]]
    )
    """A value's unit as a factor of another value's."""
    known: dict[SSAValue, float] = field(default_factory=dict[SSAValue, float])
    zeros: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    layers: dict[Operation, Operation] = field(default_factory=dict[Operation, Operation])
    """Rescale → the layer that it ends."""

    def constant(self, value: SSAValue) -> torch.Tensor | None:
        """Return the elements of a constant."""
        owner = value.owner
        if isinstance(owner, WeightOp):
            return self.weights.get(owner.key.data)
        rule = rule_for(type(owner)) if isinstance(owner, ConstOp) else None
        if rule is None:
            return None
        (held,) = rule(cast(Operation, owner), [], Interpreter(self.weights))
        return cast(torch.Tensor, held)

    def number(self, value: SSAValue) -> int | None:
        """Return the single element of a constant."""
        constant = self.constant(value)
        return None if constant is None or constant.numel() != 1 else int(constant.reshape(-1)[0])

    def factors(self, op: t.RescaleOp) -> torch.Tensor | None:
        """Return the factors by which a RESCALE multiplies; None if they are not constant."""
        held = self.constant(op.multiplier), self.constant(op.shift)
        if held[0] is None or held[1] is None:
            return None
        return held[0].double() * torch.exp2(-held[1].double())

    def root(self, value: SSAValue) -> tuple[SSAValue, float]:
        """Return the value that determines a value's unit, and the factor between both units."""
        factor = 1.0
        while value in self.units:
            value, by = self.units[value]
            factor *= by
        return value, factor

    def is_joined(self, value: SSAValue, other: SSAValue, by: float = 1.0) -> bool:
        """State that a value's unit is another's times a factor; return whether that is
        consistent.
        """
        (one, mine), (two, others) = self.root(value), self.root(other)
        if one is two:
            return abs(mine / (others * by) - 1) < _ALIGNED
        ratio = others * by / mine
        if one in self.known and two in self.known:
            return abs(self.known[one] / (self.known[two] * ratio) - 1) < _ALIGNED
        if one in self.known:
            self.known[two] = self.known.pop(one) / ratio
        self.units[one] = two, ratio
        return True

    def is_at(self, value: SSAValue, zero: int) -> bool:
        """State the zero point of a value; return whether that is consistent."""
        return self.zeros.setdefault(value, zero) == zero

    def scale(self, value: SSAValue) -> float:
        """Return the scale of a value's integers."""
        root, factor = self.root(value)
        return self.known.setdefault(root, 1.0) * factor

    def quantization(self, value: SSAValue) -> Quantization:
        """Return the quantization of the stored integers of a value."""
        bits = _BITS[element(value.type)]
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        return Quantization(
            bits, True, low, high, f32, [self.scale(value)], [self.zeros.get(value, 0)]
        )

    def weight_scales(self, op: t.RescaleOp, layer: Operation) -> torch.Tensor:
        """Return the units of a layer's weights, one or one per channel, in double precision."""
        factors = self.factors(op)
        assert factors is not None
        return factors * (self.scale(op.results[0]) / self.scale(layer.operands[0]))


def scales_of(func: FuncOp, weights: WeightStore) -> Scales | None:
    """Return the units of a method of integers; None if an operator has no equivalent on reals."""
    scales = Scales(weights)
    if not any(isinstance(op, t.RescaleOp) for op in func.body.block.ops):
        return None
    _state_ports(func, scales)
    for op in func.body.block.ops:
        if not _is_read(op, scales):
            return None
    for op in reversed(list(func.body.block.ops)):
        if isinstance(op, ALIKE):
            for value in (*_numbers(op), op.results[0]):
                if not scales.is_at(value, _zero_of(op, scales)):
                    return None
    return scales


def _state_ports(func: FuncOp, scales: Scales) -> None:
    last = func.body.block.last_op
    assert isinstance(last, ReturnOp)
    for values, name in ((func.body.block.args, INPUT), (last.operands, OUTPUT)):
        for value, held in zip(values, meanings(func, name), strict=False):
            if held is not None and value not in scales.units:
                scales.known[value] = held.scale


def _numbers(op: Operation) -> list[SSAValue]:
    """Return the operands that are tensors of numbers, not shapes."""
    return [value for value in op.operands if isinstance(value.type, TensorType)]


def _zero_of(op: Operation, scales: Scales) -> int:
    values = (*_numbers(op), op.results[0])
    return next((scales.zeros[value] for value in values if value in scales.zeros), 0)


def _is_read(op: Operation, scales: Scales) -> bool:
    if isinstance(op, ReturnOp | WeightOp | ConstOp | t.ConstShapeOp):
        return True
    if isinstance(op, LAYERS):
        return _is_layer(op, scales)
    if isinstance(op, t.RescaleOp):
        return _is_rescale(op, scales)
    if not isinstance(op, ALIKE) or any(scales.constant(v) is not None for v in _numbers(op)):
        return False
    result = op.results[0]
    if isinstance(op, t.AddOp | t.SubOp | t.ReduceSumOp) and element(result.type) != i32:
        return False
    if isinstance(op, t.ReduceSumOp):  # Its unit is the operand's divided by the count.
        return scales.is_joined(
            result, op.operands[0], 1 / number_of(dims(op.operands[0].type)[axis_of(op)])
        )
    return all(scales.is_joined(result, value) for value in _numbers(op))


def _is_layer(op: Operation, scales: Scales) -> bool:
    x, weight, bias, input_zp, weight_zp = op.operands
    zeros = scales.number(input_zp), scales.number(weight_zp)
    (result,) = op.results
    users = [use.operation for use in result.uses]
    if zeros[0] is None or zeros[1] != 0 or not scales.is_at(x, zeros[0]):
        return False
    if scales.constant(weight) is None or scales.constant(bias) is None:
        return False
    if len(users) != 1 or not isinstance(users[0], t.RescaleOp) or element(x.type) != i8:
        return False
    if (
        isinstance(op, t.DepthwiseConv2dOp)
        and cast(torch.Tensor, scales.constant(weight)).shape[3] != 1
    ):
        return False
    scales.layers[users[0]] = op
    return True


def _is_rescale(op: t.RescaleOp, scales: Scales) -> bool:
    factors, flags = scales.factors(op), (op.input_unsigned, op.output_unsigned)
    into, out = scales.number(op.input_zp), scales.number(op.output_zp)
    if factors is None or into is None or out is None or any(flag.value.data for flag in flags):
        return False
    if not scales.is_at(op.results[0], out) or not bool((factors > 0).all()):
        return False
    if op in scales.layers:
        return into == 0 and element(op.results[0].type) == i8
    if factors.numel() != 1 or not scales.is_at(op.input, into):
        return False
    return scales.is_joined(op.results[0], op.input, 1 / float(factors))


def layer_in_reals(b: Rewriter, op: t.RescaleOp, x: SSAValue, scales: Scales) -> SSAValue:
    """Return the layer `[N, C, H, W]` on reals that ends in a rescale; `x` is `[N, H, W, C]`."""
    layer = scales.layers[op]
    quantization = scales.constant(layer.operands[1]), scales.constant(layer.operands[2])
    weight, bias = cast("tuple[torch.Tensor, torch.Tensor]", quantization)
    is_deep = isinstance(layer, t.DepthwiseConv2dOp)
    weight = weight.permute((2, 3, 0, 1) if is_deep else (0, 3, 1, 2)).contiguous()
    units = scales.weight_scales(op, layer)
    low = min(-127, int(weight.min()))
    channels = int(units.numel())
    axis: tuple[Any, ...] = (((0, 1),), (channels,)) if channels > 1 else ()
    means = Quantization(8, True, low, 127, f32, units.tolist(), [0] * channels, *axis)
    reals = (bias.double() * scales.scale(layer.operands[0]) * units).float()
    image = b.insert(op_class("aten.permute.default").make(x, [0, 3, 1, 2])).results[0]
    top, bottom, left, right = ints(layer.properties["pad"])
    if not _is_even(layer, weight):
        pads = [left, right, top, bottom]
        made = op_class("aten.constant_pad_nd.default").make(image, pads, 0.0)
        quantization = scales.quantization(layer.operands[0])
        image = dequantized(b, quantized(b, b.insert(made).results[0], quantization), quantization)
        top = left = 0
    called = op_class("aten.convolution.default").make(
        image,
        dequantized(b, b.constant(weight, "weight"), means),
        b.constant(reals.expand(weight.shape[0]).contiguous(), "bias"),
        ints(layer.properties["stride"]),
        [top, left],
        ints(layer.properties["dilation"]),
        False,
        [0, 0],
        weight.shape[0] if is_deep else 1,
    )
    return b.insert(called).results[0]


def _is_even(layer: Operation, weight: torch.Tensor) -> bool:
    """Whether symmetric padding results in the same number of windows.

    TOSA requires that windows read all elements.
    """
    pads, strides = ints(layer.properties["pad"]), ints(layer.properties["stride"])
    dilations = ints(layer.properties["dilation"])
    given, made = dims(layer.operands[0].type)[1:3], dims(layer.results[0].type)[1:3]
    for axis in (0, 1):
        before, after = pads[2 * axis : 2 * axis + 2]
        reach = dilations[axis] * (weight.shape[2 + axis] - 1) + 1
        room = cast(int, given[axis]) + 2 * before - reach
        if after > before or room // strides[axis] + 1 != made[axis]:
            return False
    return True


def axis_of(op: t.ReduceSumOp) -> int:
    """Return the axis of a reduction."""
    return int(op.axis.value.data)


def sum_of(op: t.ReduceSumOp) -> tuple[SSAValue, list[int]]:
    """Return the operand of a sum, or of several successive sums, and their axes."""
    axes = [axis_of(op)]
    while isinstance(owner := op.input.owner, t.ReduceSumOp) and op.input.has_one_use():
        op, axes = owner, [axis_of(owner), *axes]
    return op.input, axes
