"""A mean becomes an average pool, or, like a sum, a product with ones, which rounds once.

Over the last dimension it is a fully connected layer of ones, over the others an average pool of an
image that is made of views. The average kernel passes scale and zero point through; a depthwise
convolution with ones rounds once, whatever the result's quantisation.

Before:
    %a = quant.dcast %x : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x4xf32>
    %m = aten.mean.dim(%a, [-1], true) : (tensor<2x4xf32>) -> tensor<2x1xf32>
    %q = quant.qcast %m : tensor<2x1xf32> to tensor<2x1x!quant.uniform<i8:f32, 0.25>>
After:
    %v1 = quant.scast dense<1> : tensor<1x4xi8> to tensor<1x4x!quant.uniform<i8:f32, 0.25>>
    %q = cmsis.quantized_linear(%x, %v1) {input_offset = -3 : i64, filter_offset = 0 : i64,
        output_offset = 0 : i64, requantize_multipliers = array<i64: 1073741824>,
        requantize_shifts = array<i64: 0>, activation_max = 127 : i64,
        activation_min = -128 : i64} : (tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>,
        tensor<1x4x!quant.uniform<i8:f32, 0.25>>) -> tensor<2x1x!quant.uniform<i8:f32, 0.25>>
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, cast

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.cmsis.arithmetic import (
    Multiplier,
    quantize_multiplier,
    requantize_overflows,
)
from stepwell.dialects.cmsis.ops import (
    QuantizedAvgPool2dNhwc,
    QuantizedLinear,
)
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.quantised.recognise import (
    Activation,
    Use,
    activation,
    deliver,
    distinct,
    quantized_uses,
)
from stepwell.translate.rewrites.cmsis.operators.quantized import (
    not_fixed,
    ones,
    requantisation,
    shift_refusal,
    summed_windows,
)
from stepwell.translate.rewrites.cmsis.operators.rescale import rescaled
from stepwell.translate.rewrites.cmsis.placing.reshape import reshaped, to_nhwc, transposed

MEAN, SUM = op_class("aten.mean.dim"), op_class("aten.sum.dim_IntList")
SAFE_CELLS = (1 << 31) // 255 - 1


@dataclass(frozen=True)
class Mean:
    """A mean or sum over dimensions next to each other, every use of it quantised.

    `is_image`: over height and width of NCHW, which the kernels take as NHWC. `share` is what each
    value counts for: 1 / `over` in a mean, 1 in a sum.
    """

    op: SchemaOp
    input: Activation
    is_image: bool
    before: int
    over: int
    after: int
    share: float
    uses: tuple[Use, ...]


@dataclass(frozen=True)
class LowerMean(Rewrite[Mean]):
    """q(mean(dq(x), dims)) and q(sum(dq(x), dims)) → cmsis."""

    name: ClassVar[str] = "lower-mean"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (MEAN, SUM)
    bound: ClassVar[Bound] = Bound(absolute=1.0, reason="averages are rounded, in units")

    def match(self, op: SchemaOp, program: Program) -> Mean | Refusal | None:
        """The dimensions are adjacent, operand and uses are int8."""
        given = op.operands[0].type
        if refusal := not_fixed(op.operands[0]):
            return refusal
        if op.arg("dtype") is not None:
            return Refusal("it changes the element type")
        shape = cast("tuple[int, ...]", dims(given))
        if not shape:
            return Refusal("a scalar has no axes")
        axes = sorted(axis % len(shape) for axis in (op.arg("dim") or range(len(shape))))
        if axes != list(range(axes[0], axes[-1] + 1)):
            return Refusal(f"dimensions {axes} do not lie next to each other")
        x = activation(op.operands[0])
        if isinstance(x, Refusal):
            return x
        uses = quantized_uses(op.results[0])
        if isinstance(uses, Refusal):
            return uses
        over = _product(shape[axes[0] : axes[-1] + 1])
        if over > SAFE_CELLS:
            return Refusal(f"a sum of {over} values can overflow int32")
        before, after = _product(shape[: axes[0]]), _product(shape[axes[-1] + 1 :])
        is_image = len(shape) == 4 and axes == [2, 3]
        if is_image:
            before, after = shape[0], shape[1]
        share = 1.0 / over if isinstance(op, MEAN) else 1.0
        for use in uses:
            factor = _factor(x, share, use)
            if found := shift_refusal([factor]):
                return found
            if requantize_overflows(-255 * over, 255 * over, factor):
                return Refusal(f"a factor of {factor.real:g} takes a sum of {over} past int32")
        return Mean(op, x, is_image, before, over, after, share, uses)

    def build(self, match: Mean, rw: Rewriter) -> None:
        """Rows of ones, an average pool, or a convolution with ones."""
        given = match.input.value
        given = to_nhwc(rw, given) if match.is_image else given
        match = replace(match, input=replace(match.input, value=given))
        for use, group in distinct(match.uses):
            if match.after == 1:
                value = self._rows(match, use, rw)
            elif isinstance(match.op, MEAN) and is_no_finer(use, match.input):
                value = self._pool(match, use, rw)
            else:
                value = self._ones(match, use, rw)
            deliver(rw, group, reshaped(rw, value, dims(use.type)))

    def _rows(self, match: Mean, use: Use, rw: Rewriter) -> SSAValue:
        factor = _factor(match.input, match.share, use)
        rows = reshaped(rw, match.input.value, (match.before, match.over))
        weight = ones(rw, (1, match.over), match.share)
        made = QuantizedLinear.make(
            rows,
            weight,
            None,
            None,
            result=tensor((match.before, 1), element(use.type)),
            filter_offset=0,
            **requantisation(match.input.held, use, [factor]),
        )
        return rw.insert(made).results[0]

    def _pool(self, match: Mean, use: Use, rw: Rewriter) -> SSAValue:
        image = reshaped(rw, match.input.value, (match.before, match.over, 1, match.after))
        scale = quantize_multiplier(match.input.held.scale)
        made = QuantizedAvgPool2dNhwc.make(
            image,
            result=tensor((match.before, 1, 1, match.after), element(image.type)),
            kernel_size=(match.over, 1),
            stride=(1, 1),
            padding=(0, 0),
            ceil_mode=False,
            zero_point=match.input.held.zero_point,
            multiplier=scale.multiplier,
            shift=scale.shift,
            scratch=0,
        )
        value = rw.insert(made).results[0]
        return rescaled(rw, reshaped(rw, value, dims(use.type)), use)

    def _ones(self, match: Mean, use: Use, rw: Rewriter) -> SSAValue:
        value = reshaped(rw, match.input.value, (match.before, match.over, match.after))
        if match.before > 1:  # One image whose channels are (batch, channel) pairs.
            value = transposed(rw, value, (1, 0, 2))
        channels = match.before * match.after
        image = reshaped(rw, value, (1, match.over, 1, channels))
        factor = _factor(match.input, match.share, use)
        return summed_windows(
            rw,
            image,
            ones(rw, (1, match.over, 1, channels), match.share),
            stride=(1, 1),
            padding=(0, 0),
            result=tensor((1, 1, 1, channels), element(use.type)),
            **requantisation(match.input.held, use, [factor] * channels),
        )


def is_no_finer(use: Use, given: Activation) -> bool:
    """Whether an average that passes the scale through resolves what a use does."""
    return use.held.scale >= given.held.scale * (1 - 1e-6)


def _factor(given: Activation, share: float, use: Use) -> Multiplier:
    return quantize_multiplier(given.held.scale * share / use.held.scale)


def _product(sizes: tuple[int, ...]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total
