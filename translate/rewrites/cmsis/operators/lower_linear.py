"""Linear layers become `cmsis.quantized_linear`, or a 1×1 convolution if quantised per channel.

`linear`, `addmm`, `mm` and `matmul` with a constant right side. The library's linear takes one
multiplier for all rows; weights with a scale for each row lower exactly to a 1×1 convolution,
whose requantisation is per channel. The bias form is written here; `fold-kernel-sum` turns it
into what an MVE build reads.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xi8>
    %wt = quant.scast %w : tensor<3x4xi8> to tensor<3x4x!quant.uniform<i8:f32, 0.25>>
    %xr = quant.dcast %x : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x4xf32>
    %wr = quant.dcast %wt : tensor<3x4x!quant.uniform<i8:f32, 0.25>> to tensor<3x4xf32>
    %y = aten.linear.default(%xr, %wr) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
    %z = aten.relu.default(%y) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %q = quant.qcast %z : tensor<2x3xf32> to tensor<2x3x!quant.uniform<i8:f32, 2.0:-1>>
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xi8>
    %wt = quant.scast %w : tensor<3x4xi8> to tensor<3x4x!quant.uniform<i8:f32, 0.25>>
    %q = cmsis.quantized_linear(%x, %wt) {input_offset = -3 : i64, filter_offset = 0 : i64,
        output_offset = -1 : i64, requantize_multipliers = array<i64: 1073741824>,
        requantize_shifts = array<i64: -3>, activation_max = 127 : i64,
        activation_min = -1 : i64}
        : (tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>, tensor<3x4x!quant.uniform<i8:f32, 0.25>>)
        -> tensor<2x3x!quant.uniform<i8:f32, 2.0:-1>>
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, cast

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.cmsis.arithmetic import Multiplier, offset_rows
from stepwell.dialects.cmsis.ops import QuantizedConv2dNhwc, QuantizedLinear
from stepwell.dialects.quant.types import UniformQuantizedType
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, is_static, tensor
from stepwell.translate.quantised.recognise import (
    StoredWeight,
    Use,
    activation,
    bias_operand,
    deliver,
    distinct,
    quantized_uses,
    stored_weight,
    typed_weight,
)
from stepwell.translate.rewrites.cmsis.operators.quantized import Layer, multipliers
from stepwell.translate.rewrites.cmsis.placing.reshape import reshaped

LINEAR, ADDMM, MM, MATMUL = (
    op_class(f"aten.{name}.default") for name in ("linear", "addmm", "mm", "matmul")
)


@dataclass(frozen=True)
class LowerLinear(Rewrite[Layer]):
    """q(linear(dq(x), dq(w), b)) → cmsis."""

    name: ClassVar[str] = "lower-linear"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (LINEAR, ADDMM, MM, MATMUL)
    bound: ClassVar[Bound] = Bound(absolute=1.0, reason="fixed-point requantisation, in units")

    def match(self, op: SchemaOp, program: Program) -> Layer | Refusal | None:
        """Operands and uses are int8, the weight and bias constant, no sum can overflow."""
        parts = _parts(op)
        if parts is None or isinstance(parts, Refusal):
            return parts
        given, weight_value, bias_value, transposed = parts
        x = activation(given)
        if isinstance(x, Refusal):
            return x
        weight = stored_weight(weight_value)
        if isinstance(weight, Refusal):
            return None if _is_batched(weight_value) else weight
        weight = _rows(weight, transposed, program)
        bias = bias_operand(bias_value)
        if isinstance(bias, Refusal):
            return bias
        uses = quantized_uses(op.results[0])
        if isinstance(uses, Refusal):
            return uses
        if weight.held.axis not in (None, 0):
            return Refusal("its weight has a scale for each input, not for each output")
        if weight.held.axis == 0 and not weight.held.is_symmetric:
            return Refusal("its weight has a zero point for each row; the kernel takes none")
        if weight.held.axis == 0 and not is_static(op.results[0].type):
            return Refusal("a convolution, which per-channel weights need, has a fixed shape")
        scales: list[tuple[Multiplier, ...]] = []
        for use in uses:
            found = multipliers(x.held, weight.held, use.held)
            if isinstance(found, Refusal):
                return found
            scales.append(found)
        layer = Layer(op, x, weight, bias, uses, tuple(scales))
        rows = offset_rows(program.weights.get(weight.key), -weight.held.zero_points[0])
        return layer.overflow(rows, program, padded=False) or layer

    def build(self, match: Layer, rw: Rewriter) -> None:
        """One op for each distinct quantisation of the result."""
        weight_shape = dims(rw.weights.type_of(match.weight.key))
        channels = cast(int, weight_shape[0])
        bias = match.bias_key(channels, rw.program)
        for use, group in distinct(match.uses):
            if match.weight.held.axis is None:
                value = self._fully_connected(match, use, bias, rw)
            else:
                value = self._pointwise(match, use, bias, channels, rw)
            deliver(rw, group, value)

    def _fully_connected(self, match: Layer, use: Use, bias: str | None, rw: Rewriter) -> SSAValue:
        held = UniformQuantizedType(match.weight.held)
        type_ = tensor(dims(rw.weights.type_of(match.weight.key)), held)
        op = QuantizedLinear.make(
            match.input.value,
            typed_weight(rw, match.weight.key, type_),
            rw.weight(bias) if bias is not None else None,
            None,
            result=use.type,
            filter_offset=-match.weight.held.zero_point,
            **match.requantisation(use),
        )
        return rw.insert(op).results[0]

    def _pointwise(
        self,
        match: Layer,
        use: Use,
        bias: str | None,
        channels: int,
        rw: Rewriter,
    ) -> SSAValue:
        shape = cast("tuple[int, ...]", dims(match.input.value.type))
        inner = shape[-1]
        rows = 1
        for size in shape[:-1]:
            rows *= size
        image = reshaped(rw, match.input.value, (1, rows, 1, inner))
        kernel = (channels, 1, 1, inner)
        key = rw.weights.derive("cmsis.reshape", [match.weight.key], shape=list(kernel))
        weight = typed_weight(rw, key, tensor(kernel, UniformQuantizedType(match.weight.held)))
        made = QuantizedConv2dNhwc.make(
            image,
            weight,
            rw.weight(bias) if bias is not None else None,
            result=tensor((1, rows, 1, channels), element(use.type)),
            stride=[1, 1],
            padding=[0, 0],
            dilation=[1, 1],
            **match.requantisation(use),
            scratch=0,
        )
        result = rw.insert(made).results[0]
        return reshaped(rw, result, cast("tuple[int, ...]", dims(use.type)))


def _parts(
    op: SchemaOp,
) -> tuple[SSAValue, SSAValue, SSAValue | None, bool] | Refusal | None:
    """(input, weight, bias, whether the weight is [K, N])."""
    if isinstance(op, LINEAR):
        weight = op.operands[1]
        if len(dims(weight.type)) != 2:
            return Refusal("its weight is one row, so that there is no axis of outputs")
        return op.operands[0], weight, op.operand("bias"), False
    if isinstance(op, ADDMM):
        if op.arg("beta") != 1 or op.arg("alpha") != 1:
            return Refusal(f"beta is {op.arg('beta')} and alpha {op.arg('alpha')}; both must be 1")
        if len(dims(op.operands[0].type)) != 1:
            return Refusal("what is added is not one number for each output")
        return op.operands[1], op.operands[2], op.operands[0], True
    if len(dims(op.operands[1].type)) != 2:
        return None
    return op.operands[0], op.operands[1], None, True


def _is_batched(weight: SSAValue) -> bool:
    """Whether the right side is quantised at run time: a batch matmul's business."""
    return not isinstance(activation(weight), Refusal)


def _rows(weight: StoredWeight, transposed: bool, program: Program) -> StoredWeight:
    if not transposed:
        return weight
    key = program.weights.derive("cmsis.permute", [weight.key], permutation=[1, 0])
    blocks = tuple((1 - axis, block) for axis, block in weight.held.blocks)
    return StoredWeight(key, replace(weight.held, blocks=blocks))
