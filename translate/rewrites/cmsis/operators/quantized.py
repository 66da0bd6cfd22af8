"""What CMSIS-NN's kernels ask of quantised layers: static shapes, shifts, sums that fit int32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.cmsis.arithmetic import (
    Multiplier,
    quantize_multiplier,
    row_overflows,
)
from stepwell.dialects.cmsis.ops import QuantizedDepthwiseConv2dNhwc
from stepwell.dialects.quant import per_tensor
from stepwell.dialects.quant.types import Quantization
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewriter
from stepwell.ir.types import dims, is_static, tensor
from stepwell.translate.quantised.recognise import (
    Activation,
    Bias,
    StoredWeight,
    Use,
    activation,
    bias_operand,
    integer_bias,
    not_for_each_output,
    quantized_uses,
    stored_weight,
    typed_weight,
)


def not_fixed(*values: SSAValue) -> Refusal | None:
    """Most of the library's operators resize nothing: their shapes are known ahead of time."""
    if all(is_static(value.type) for value in values):
        return None
    return Refusal("its shape is known only at run time, and the operator resizes nothing")


def overflow(
    rows: torch.Tensor,
    bias: torch.Tensor | None,
    given: Quantization,
    multipliers: Sequence[Multiplier],
    padded: bool,
) -> Refusal | None:
    """Why some input would overflow an accumulator or its requantisation, from actual weights.

    `rows` is [N, K], filter offset added. A padded cell contributes 0.
    """
    low_in, high_in = given.low - given.zero_point, given.high - given.zero_point
    if padded:
        low_in, high_in = min(low_in, 0), max(high_in, 0)
    shifts = [scale.shift for scale in multipliers]
    for found in row_overflows(rows, bias, low_in, high_in, shifts):
        reach = f"{found.low} … {found.high}"
        if found.in_sum:
            return Refusal(f"row {found.row} can accumulate {reach}, past int32")
        return Refusal(
            f"row {found.row} is scaled up by 2^{found.shift}, which takes {reach} past int32"
        )
    return None


def multipliers(
    given: Quantization, weight: Quantization, result: Quantization
) -> tuple[Multiplier, ...] | Refusal:
    """One multiplier for each weight scale; all shifts must be ones the kernel defines."""
    found = tuple(
        quantize_multiplier(given.scale * scale / result.scale) for scale in weight.scales
    )
    return shift_refusal(found) or found


def shift_refusal(found: Sequence[Multiplier]) -> Refusal | None:
    """Why a factor is beyond what `arm_nn_requantize` can shift by, or None."""
    for scale in found:
        if not -31 <= scale.shift <= 30:
            return Refusal(
                f"a factor of {scale.real:g} needs a shift of {scale.shift}, outside -31 … 30"
            )
    return None


@dataclass(frozen=True)
class Layer:
    """A layer of int8: what it reads, its constants, and every use of its result.

    Attributes:
        scales: for each use a multiplier for each output, or one for all.
    """

    op: SchemaOp
    input: Activation
    weight: StoredWeight
    bias: Bias | None
    uses: tuple[Use, ...]
    scales: tuple[tuple[Multiplier, ...], ...]

    def bias_key(self, channels: int, program: Program) -> str | None:
        """The key of int32 biases in units of the products; None if there are none."""
        units = [self.input.held.scale * scale for scale in self.weight.held.scales]
        return integer_bias(self.bias, units, channels, program)

    def overflow(self, rows: torch.Tensor, program: Program, padded: bool) -> Refusal | None:
        """Why some input overflows the sums of these rows, [outputs, products], or None."""
        key = self.bias_key(len(rows), program)
        bias = None if key is None else program.weights.get(key).long()
        refusals = (overflow(rows, bias, self.input.held, s, padded) for s in self.scales)
        return next((refusal for refusal in refusals if refusal is not None), None)

    def requantisation(self, use: Use) -> dict[str, Any]:
        """The fields of an operator that say how its sums become a use's integers."""
        return requantisation(self.input.held, use, self.scales[self.uses.index(use)])


def requantisation(given: Quantization, use: Use, scales: Sequence[Multiplier]) -> dict[str, Any]:
    """The fields of an operator that say how sums of inputs become a use's integers."""
    return {
        "input_offset": -given.zero_point,
        "output_offset": use.held.zero_point,
        "requantize_multipliers": [scale.multiplier for scale in scales],
        "requantize_shifts": [scale.shift for scale in scales],
        "activation_min": use.low,
        "activation_max": use.high,
    }


def convolution_layer(op: SchemaOp, axis: int, channels: int) -> Layer | Refusal:
    """A convolution of int8 whose filter has its outputs on an axis."""
    x = activation(op.operands[0])
    if isinstance(x, Refusal):
        return x
    weight = stored_weight(op.operands[1])
    if isinstance(weight, Refusal):
        return weight
    if refusal := not_for_each_output(weight, axis):
        return refusal
    bias = bias_operand(op.operand("bias"))
    if isinstance(bias, Refusal):
        return bias
    uses = quantized_uses(op.results[0])
    if isinstance(uses, Refusal):
        return uses
    scales: list[tuple[Multiplier, ...]] = []
    for use in uses:
        factors = multipliers(x.held, weight.held, use.held)
        if isinstance(factors, Refusal):
            return factors
        scales.append(factors * (channels if len(factors) == 1 else 1))
    return Layer(op, x, weight, bias, uses, tuple(scales))


def pair(value: Any) -> tuple[int, int]:
    """An `int[2]` argument, of which torch lets one number stand for both."""
    items = cast("list[int]", value if isinstance(value, list) else [value])
    return (items[0], items[0]) if len(items) == 1 else (items[0], items[1])


def ones(rw: Rewriter, shape: tuple[int, ...], share: float) -> SSAValue:
    """A weight that counts every value as `share` of itself."""
    key = rw.weights.constant(torch.ones(shape, dtype=torch.int8), "ones")
    return typed_weight(rw, key, tensor(shape, per_tensor(torch.int8, share)))


def summed_windows(rw: Rewriter, image: SSAValue, weight: SSAValue, **fields: Any) -> SSAValue:
    """A depthwise convolution of an NHWC image by one filter a channel, without a bias."""
    bias = torch.zeros(cast(int, dims(weight.type)[-1]), dtype=torch.int32)
    made = QuantizedDepthwiseConv2dNhwc.make(
        image,
        weight,
        rw.constant(bias, "zero_bias"),
        dilation=(1, 1),
        depth_multiplier=1,
        scratch=0,
        **fields,
    )
    return rw.insert(made).results[0]
