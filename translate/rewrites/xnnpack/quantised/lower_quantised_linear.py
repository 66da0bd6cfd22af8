"""Quantised linear layers to fully-connected nodes: static int8, run-time int8, weights only.

A static one reads and writes int8; it is folded with its casts only when input, weight, bias and
result all are what the kernel takes. A dynamic one finds the scales of its input at run time, for
each row (PT2E describes one scale for the whole tensor: with a row's own, no step is greater).

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xi8>
    %t = quant.scast %w : tensor<3x4xi8> to tensor<3x4x!quant.uniform<i8:f32, 0.125>>
    %r = quant.dcast %t : tensor<3x4x!quant.uniform<i8:f32, 0.125>> to tensor<3x4xf32>
    %x = quant.dcast %q : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x4xf32>
    %y = aten.linear.default(%x, %r) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
    %z = quant.qcast %y : tensor<2x3xf32> to tensor<2x3x!quant.uniform<i8:f32, 0.25>>
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xi8>
    %0 = quant.scast %w : tensor<3x4xi8> to tensor<3x4x!quant.uniform<i8:f32, 0.125>>
    %z = xnnpack.fully_connected(%q, %0) : (tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>, tensor<3x4x!quant.uniform<i8:f32, 0.125>>) -> tensor<2x3x!quant.uniform<i8:f32, 0.25>>
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant import Quantization
from stepwell.dialects.quant.numbers import from_tensor
from stepwell.dialects.xnnpack.datatypes import DynamicInt8Type, group_size, quantization_problem
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter, Value
from stepwell.ir.types import dims, element
from stepwell.ir.weights import recipe
from stepwell.translate.quantised.recognise import (
    StoredWeight,
    deliver,
    quantised_source,
    stored_constant,
)
from stepwell.translate.quantised.run_time import run_time_quantised
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_constant, not_for_xnnpack
from stepwell.translate.rewrites.xnnpack.quantised.quantised import (
    BetweenCasts,
    StoredParameters,
    between_casts,
    per_channel,
    product_step,
    stored_parameters,
    typed_bias,
    typed_constant,
)
from stepwell.translate.rewrites.xnnpack.quantised.quantised_bounds import (
    STATIC_LAYER,
    STORED_LAYER,
    static_layer,
    stored_layer,
)


@dataclass(frozen=True)
class StaticLinear:
    """A linear layer from int8 to int8, with a clamp before its quantisation perhaps."""

    op: SchemaOp
    between: BetweenCasts
    stored: StoredParameters


@dataclass(frozen=True)
class LowerQuantisedLinear(Rewrite[StaticLinear]):
    """q(linear(dq(x), dq(w), b)) to `xnnpack.fully_connected` of int8."""

    name: ClassVar[str] = "lower-quantised-linear"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.LinearDefault,)
    bound: ClassVar[Bound] = STATIC_LAYER

    def match(self, op: SchemaOp, program: Program) -> StaticLinear | Refusal | None:
        """Guards: int8 on both sides, a symmetric constant weight, a bias that fits int32."""
        found = between_casts(op, op.operands[:1])
        if not isinstance(found, BetweenCasts):
            return found
        if len(dims(op.operands[0].type)) < 2 or len(dims(op.operands[1].type)) != 2:
            return Refusal("the input or the weight is a vector")
        stored = stored_parameters(op, found, 0, program)
        if isinstance(stored, Refusal):
            return stored
        return StaticLinear(op, found, stored)

    def bound_at(self, match: StaticLinear, value: Value) -> Bound:
        """`quantised_bounds.static_layer`."""
        products = product_step(match.between.sources[0], match.stored.weight)
        return static_layer(match.op, products, match.between.made, value)

    def build(self, match: StaticLinear, rw: Rewriter) -> None:
        """The node from int8 to int8."""
        (source,), weight = match.between.sources, match.stored.weight
        node = xnnpack.FullyConnected.make(
            source,
            typed_constant(rw, weight.key, weight.held),
            *typed_bias(rw, match.stored, source),
            result=match.between.made.type,
            **match.between.limits,
        )
        deliver(rw, match.between.uses, rw.insert(node).results[0])


@dataclass(frozen=True)
class FloatLinear:
    """A linear layer of floats, or of floats quantised at run time, with a stored weight."""

    op: SchemaOp
    source: SSAValue
    scale: SSAValue | None
    weight: StoredWeight
    held: Quantization


@dataclass(frozen=True)
class LowerDynamicLinear(Rewrite[FloatLinear]):
    """linear(dq(q(x, scale of x)), dq(w), b), or linear(x, dq(w)), with the weight kept stored."""

    name: ClassVar[str] = "lower-dynamic-linear"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.LinearDefault,)
    bound: ClassVar[Bound] = STORED_LAYER

    def match(self, op: SchemaOp, program: Program) -> FloatLinear | Refusal | None:
        """Guards: float32 in and out, symmetric weights that XNNPACK has for such an input."""
        weight = stored_constant(op.operands[1])
        if weight is None or quantised_source(op.operands[0]) is not None:
            return None
        found = run_time_quantised(op.operands[0])
        value = op.operands[0] if found is None else found.source
        bias = op.operand("bias")
        if len(dims(value.type)) < 2 or len(dims(op.operands[1].type)) != 2:
            return Refusal("the input or the weight is a vector")
        held = packable(weight.held, dims(op.operands[1].type))
        if isinstance(held, Refusal):
            return held
        for refusal in (
            not_for_xnnpack(op),
            not_constant(bias, "bias"),
        ):
            if refusal is not None:
                return refusal
        if element(value.type) != f32:
            return Refusal("XNNPACK quantises float32 values at run time")
        if found is None and held.sub_channel:
            return Refusal("with float inputs XNNPACK has no kernel for groups of weights")
        scale = None if found is None else found.scale
        return FloatLinear(op, value, scale, weight, held)

    def bound_at(self, match: FloatLinear, value: Value) -> Bound:
        """`quantised_bounds.stored_layer`."""
        step = 0.0 if match.scale is None else float(value(match.scale).max())
        return stored_layer(match.op, step, value, match.held.sub_channel)

    def build(self, match: FloatLinear, rw: Rewriter) -> None:
        """Quantise the rows, then the node from them to floats."""
        value = match.source
        if match.scale is not None:
            value = rw.insert(xnnpack.Convert.make(value, element=DynamicInt8Type(1))).results[0]
        bias = match.op.operand("bias")
        if bias is not None and match.scale is None:
            bias = _in_units_of_the_weight(bias, match.held, rw)
        node = xnnpack.FullyConnected.make(
            value,
            typed_constant(rw, match.weight.key, match.held),
            *([] if bias is None else [bias]),
            result=match.op.results[0].type,
        )
        rw.replace(match.op, [rw.insert(node).results[0]])


@recipe("bias_over_scales")
def bias_over_scales(bias: torch.Tensor, *, scales: list[float]) -> torch.Tensor:
    """A bias in units of each output's weight scale."""
    if bias.is_meta:
        return torch.empty_like(bias)
    return (bias.double() / torch.tensor(scales, dtype=torch.float64)).float()


def _in_units_of_the_weight(bias: SSAValue, held: Quantization, rw: Rewriter) -> SSAValue:
    """With float inputs XNNPACK adds the bias to the sums before it scales them."""
    key = weight_key(bias)
    assert key is not None
    return rw.weight(rw.weights.derive("bias_over_scales", [key], scales=list(held.scales)))


def packable(held: Quantization, shape: tuple[object, ...]) -> Quantization | Refusal:
    """A weight's quantisation as XNNPACK packs it: 8 or 4 bits, by output or by group of inputs.

    XNNPACK keeps the scales of groups as bfloat16 numbers; they are rounded here, where it shows.
    """
    if not held.signed or held.bits != 8 or held.expressed != f32:
        return Refusal("XNNPACK's quantised weights are signed int8 or int4 of float32 values")
    if not held.is_symmetric:
        return Refusal("the weight has a zero point; XNNPACK's weights are symmetric")
    outputs, inputs = shape
    assert isinstance(outputs, int) and isinstance(inputs, int)
    if held.sub_channel:
        if group_size(held) is None:
            return Refusal("the weight's groups are not runs of inputs of one output")
        if held.low < -8 or held.high > 7:
            return Refusal("XNNPACK has groups of 4-bit weights only")
        scales = from_tensor(held.scale_values().bfloat16(), float)
        narrow = replace(held, bits=4, low=-8, high=7, scales=scales)
        problem = quantization_problem(narrow, "qbint4")
        return narrow if problem is None else Refusal(problem)
    if held.axis not in (None, 0):
        return Refusal("the weight's scales lie on the axis of inputs")
    if held.low >= -8 and held.high <= 7 and inputs % 2 == 0:
        held = replace(held, bits=4)
    return per_channel(held, 0, outputs)
