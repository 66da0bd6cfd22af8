"""Computes a linear layer's kernel sum ahead of time and folds the bias into it.

`arm_fully_connected_s8` reads its bias from the kernel sums on MVE builds (M55, M85) and from the
bias on DSP and scalar builds; each ignores the other, and nothing in the operator's arguments says
which it is. An MVE program therefore keeps the sums alone, a DSP or scalar program the bias alone;
only a program that must be right on every core keeps both.

    kernel_sum[n] = input_offset · Σₖ (w[n, k] + filter_offset) + bias[n]

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xi8>
    %b = stepwell.weight <"b"> "parameter" : tensor<3xi32>
    %y = cmsis.quantized_linear(%x, %w, bias = %b) {input_offset = 5 : i64,
        filter_offset = 0 : i64, output_offset = 0 : i64,
        requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>,
        activation_max = 127 : i64, activation_min = -128 : i64}
        : (tensor<2x4xi8>, tensor<3x4xi8>, tensor<3xi32>) -> tensor<2x3xi8>
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xi8>
    %s = stepwell.weight <"w#cmsis.kernel_sum"> "constant" : tensor<1x3xi32>
    %y = cmsis.quantized_linear(%x, %w, kernel_sum = %s) {input_offset = 5 : i64,
        filter_offset = 0 : i64, output_offset = 0 : i64,
        requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>,
        activation_max = 127 : i64, activation_min = -128 : i64}
        : (tensor<2x4xi8>, tensor<3x4xi8>, tensor<1x3xi32>) -> tensor<2x3xi8>
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, cast

import torch
from xdsl.ir import Operation, SSAValue

import stepwell.dialects.cmsis.recipes  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.dialects.cmsis.ops import QuantizedLinear
from stepwell.dialects.cmsis.target import Target
from stepwell.dialects.quant import StorageCast
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims


class BiasForm(StrEnum):
    """Where a linear layer's bias is kept."""

    BIAS = "bias"
    KERNEL_SUM = "kernel-sum"
    BOTH = "both"
    RUN_TIME = "run-time"

    @staticmethod
    def of(target: Target) -> BiasForm:
        """The form that a target's kernels read."""
        return BiasForm.KERNEL_SUM if target.reads_kernel_sum else BiasForm.BIAS


@dataclass(frozen=True)
class Layer:
    """A linear layer whose weight, and bias if any, are constants."""

    op: QuantizedLinear
    weight: str
    bias: str | None


@dataclass(frozen=True)
class FoldKernelSum(Rewrite[Layer]):
    """bias → kernel_sum, as the form asks."""

    name: ClassVar[str] = "fold-kernel-sum"
    anchors: ClassVar[tuple[type[Operation], ...]] = (QuantizedLinear,)
    form: BiasForm = BiasForm.KERNEL_SUM

    def match(self, op: QuantizedLinear, program: Program) -> Layer | Refusal | None:
        """The sums are not there yet, weight and bias are in the store."""
        if op.kernel_sum is not None or self.form is BiasForm.BIAS:
            return None
        if self.form is BiasForm.RUN_TIME:
            return Refusal(
                "cortex_m::quantized_linear takes its kernel sums as a finished tensor, and has "
                "no scratch operand to compute them in at run time"
            )
        weight = constant_key(op.weights)
        if weight is None:
            return Refusal("its weight is computed at run time, so its sums are not known")
        bias = None if op.bias is None else constant_key(op.bias)
        if op.bias is not None and bias is None:
            return Refusal("its bias is computed at run time, so its sums are not known")
        return Layer(op, weight, bias)

    def build(self, match: Layer, rw: Rewriter) -> None:
        """A derived weight holds the sums; whether the bias stays is the form's to say."""
        op = match.op
        sources = [match.weight] if match.bias is None else [match.weight, match.bias]
        key = rw.weights.derive(
            "cmsis.kernel_sum",
            sources,
            input_offset=op.number("input_offset"),
            filter_offset=op.number("filter_offset"),
        )
        made = QuantizedLinear.make(
            op.input,
            op.weights,
            self._bias(op, rw) if self.form is BiasForm.BOTH else None,
            rw.weight(key),
            result=op.output.type,
            **{name: attr for name, attr in op.properties.items() if name in FIELDS},
        )
        rw.replace(op, rw.insert(made).results)

    def _bias(self, op: QuantizedLinear, rw: Rewriter) -> SSAValue:
        """The bias, stated even where it is zero: sums alone would say that they hold one."""
        if op.bias is not None:
            return op.bias
        channels = cast(int, dims(op.weights.type)[0])
        return rw.constant(torch.zeros(channels, dtype=torch.int32), "zero_bias")


FIELDS = (
    "input_offset",
    "filter_offset",
    "output_offset",
    "requantize_multipliers",
    "requantize_shifts",
    "activation_max",
    "activation_min",
)


def constant_key(value: SSAValue) -> str | None:
    """The key of a constant, plain or typed."""
    maker = value.owner
    return weight_key(maker.input if isinstance(maker, StorageCast) else value)
