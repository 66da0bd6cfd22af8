"""Constant folding: compute a linear layer's kernel sum and fold the bias into it.

`arm_fully_connected_s8` reads its bias from the kernel sums on MVE builds (M55, M85) and from the
bias on DSP and scalar builds. Each build ignores the other, and no argument of the operator says
which it is. An MVE program therefore keeps the sums alone, a DSP or scalar program the bias alone.
Only a program that must be right on every core keeps both.

    kernel_sum[n] = input_offset · Σₖ (w[n, k] + filter_offset) + bias[n]

rule fold-kernel-sum
    A derived weight holds the sums; whether the bias stays is the form's to say.
Before:
    %y = cmsis.quantized_linear(%x, %w, $bias, $sums, …) : (…) -> $T
After:
    %s = summed($constants, %y)
    %b = kept_bias($bias, $form, %w)
    %y = cmsis.quantized_linear(%x, %w, %b, %s, …)
where is_missing($sums, $form) for termination
unless is_summed_at_run_time($form) for target
with $constants = constants_of(%w, $bias)
option $form = KERNEL_SUM: "where the bias is kept"
for %v = weight : tensor<3 x 4 x i8>
for %w = quant.scast(%v) : (…) -> $W
for $sums = none, $bias = none, $input_offset = 5, $filter_offset = 0, $output_offset = 0
for $requantize_multipliers = [1073741824], $requantize_shifts = [-3]
for $activation_max = 127, $activation_min = -128, %x = "tensor<2x4xi8>", $T = "tensor<2x3xi8>"
for $W = "tensor<3x4x!quant.uniform<i8:f32, 0.25>>"
not for $form = BiasForm.RUN_TIME
"""

from __future__ import annotations

from enum import StrEnum
from typing import cast

from xdsl.ir import SSAValue

import stepwell.dialects.cmsis.recipes  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.dialects.cmsis.ops import QuantizedLinear
from stepwell.dialects.cmsis.target import Target
from stepwell.dialects.quant import StorageCast
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rules import read_rules


class BiasForm(StrEnum):
    """The place of a linear layer's bias: in the kernel sums, in the bias, or both."""

    BIAS = "bias"
    KERNEL_SUM = "kernel-sum"
    BOTH = "both"
    RUN_TIME = "run-time"

    @staticmethod
    def of(target: Target) -> BiasForm:
        """Return the form of bias that a target's kernels read."""
        return BiasForm.KERNEL_SUM if target.reads_kernel_sum else BiasForm.BIAS


KERNEL_SUM = BiasForm.KERNEL_SUM


def is_missing(sums: SSAValue | None, form: BiasForm) -> bool:
    """Whether the target needs kernel sums, and they are not computed yet."""
    return sums is None and form is not BiasForm.BIAS


def is_summed_at_run_time(form: BiasForm) -> Refusal | None:
    """Refuse kernel sums computed at run time, for which the operator has no scratch operand."""
    if form is not BiasForm.RUN_TIME:
        return None
    return Refusal(
        "cortex_m::quantized_linear takes its kernel sums as a finished tensor, and has "
        "no scratch operand to compute them in at run time"
    )


def constants_of(weight: SSAValue, bias: SSAValue | None) -> list[str] | Refusal:
    """Return the keys of a layer's weight, and of its bias if any."""
    key = constant_key(weight)
    if key is None:
        return Refusal("the weight is computed at run time, so its sums are not known")
    if bias is None:
        return [key]
    of_bias = constant_key(bias)
    if of_bias is None:
        return Refusal("the bias is computed at run time, so its sums are not known")
    return [key, of_bias]


def summed(rw: Rewriter, constants: list[str], value: SSAValue) -> SSAValue:
    """Compute the kernel sums of the layer that produces a value."""
    op = cast(QuantizedLinear, value.owner)
    offsets = {name: op.number(name) for name in ("input_offset", "filter_offset")}
    return rw.weight(rw.weights.derive("cmsis.kernel_sum", constants, **offsets))


def kept_bias(
    rw: Rewriter, bias: SSAValue | None, form: BiasForm, weight: SSAValue
) -> SSAValue | None:
    """Return the bias operand of a form with sums and bias, zeros if there is no bias: sums alone
    would mean that they contain it. None for other forms.
    """
    if form is not BiasForm.BOTH or bias is not None:
        return bias if form is BiasForm.BOTH else None
    channels = cast(int, dims(weight.type)[0])
    return rw.constant(torch.zeros(channels, dtype=torch.int32), "zero_bias")


def constant_key(value: SSAValue) -> str | None:
    """Return the key of a constant, also through a cast to a quantized type."""
    maker = value.owner
    return weight_key(maker.input if isinstance(maker, StorageCast) else value)


(FoldKernelSum,) = RULES = read_rules(__doc__, globals())
