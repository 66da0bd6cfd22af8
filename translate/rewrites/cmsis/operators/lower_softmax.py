"""Softmax over rows that cannot overflow becomes `cmsis.softmax`.

The kernel's result has scale 1/256 and zero point −128; another quantisation of the result is a
table after it, as long as it is no finer. Rows of more than 511 can reach a sum at which the kernel
is undefined (it then gives zeros), and stay a float.

Before:
    %a = quant.dcast %x : tensor<2x8x!quant.uniform<i8:f32, 0.5:3>> to tensor<2x8xf32>
    %s = aten.softmax.int(%a, -1) : (tensor<2x8xf32>) -> tensor<2x8xf32>
    %q = quant.qcast %s : tensor<2x8xf32> to tensor<2x8x!quant.uniform<i8:f32, 0.00390625:-128>>
After:
    %q = cmsis.softmax(%x) {dim = -1 : i64, input_zero_point = 3 : i64,
        output_zero_point = -128 : i64, input_multiplier = 1073741824 : i64,
        input_shift = 26 : i64, diff_min = -31 : i64}
        : (tensor<2x8x!quant.uniform<i8:f32, 0.5:3>>)
        -> tensor<2x8x!quant.uniform<i8:f32, 0.00390625:-128>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from xdsl.ir import Operation

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.cmsis.arithmetic import (
    SOFTMAX_SCALE,
    SOFTMAX_ZERO_POINT,
    softmax_parameters,
    softmax_row_is_safe,
)
from stepwell.dialects.cmsis.ops import Softmax
from stepwell.dialects.quant import per_tensor
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, with_element
from stepwell.translate.quantised.recognise import (
    Activation,
    Use,
    activation,
    deliver,
    distinct,
    quantized_uses,
)
from stepwell.translate.rewrites.cmsis.operators.quantized import shift_refusal
from stepwell.translate.rewrites.cmsis.operators.rescale import rescaled
from stepwell.translate.rewrites.cmsis.placing.reshape import transposed

SOFTMAX = tuple(op_class(f"aten.{name}") for name in ("softmax.int", "_softmax.default"))


@dataclass(frozen=True)
class Rows:
    """A softmax of a quantised value along one dimension, every use of it quantised."""

    op: SchemaOp
    input: Activation
    dim: int
    uses: tuple[Use, ...]


@dataclass(frozen=True)
class LowerSoftmax(Rewrite[Rows]):
    """q(softmax(dq(x))) → cmsis."""

    name: ClassVar[str] = "lower-softmax"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = SOFTMAX
    bound: ClassVar[Bound] = Bound(absolute=1.0, reason="fixed-point exponential, in units")

    def match(self, op: SchemaOp, program: Program) -> Rows | Refusal | None:
        """The row is short enough and known, operand and uses are int8."""
        shape = dims(op.operands[0].type)
        if not shape:
            return Refusal("a scalar has no rows")
        dim = cast(int, op.arg("dim")) % len(shape)
        row = shape[dim]
        if not isinstance(row, int):
            return Refusal("the length of its rows is known only at run time")
        if not softmax_row_is_safe(row):
            return Refusal(
                f"a row of {row} can reach a sum of 2**28, where arm_softmax_s8 is undefined "
                "(511 is the longest safe one)"
            )
        if dim != len(shape) - 1 and len(shape) > 4:
            return Refusal("a transposition of more than 4 dimensions would be needed")
        x = activation(op.operands[0])
        if isinstance(x, Refusal):
            return x
        if refusal := shift_refusal([softmax_parameters(x.held.scale).input]):
            return refusal
        uses = quantized_uses(op.results[0])
        if isinstance(uses, Refusal):
            return uses
        for use in uses:
            if use.held.scale < SOFTMAX_SCALE * (1 - 1e-6):
                return Refusal(
                    f"its result has scale {use.held.scale:g}, finer than the kernel's 1/256"
                )
        return Rows(op, x, dim, uses)

    def build(self, match: Rows, rw: Rewriter) -> None:
        """The last dimension, the kernel's own output type, then a table if another is wanted."""
        rank = len(dims(match.input.value.type))
        order = [*(axis for axis in range(rank) if axis != match.dim), match.dim]
        rows = transposed(rw, match.input.value, order)
        p = softmax_parameters(match.input.held.scale)
        fixed = per_tensor(torch.int8, SOFTMAX_SCALE, SOFTMAX_ZERO_POINT)
        made = Softmax.make(
            rows,
            result=with_element(rows.type, fixed),
            dim=-1,
            input_zero_point=match.input.held.zero_point,
            output_zero_point=SOFTMAX_ZERO_POINT,
            input_multiplier=p.input.multiplier,
            input_shift=p.input.shift,
            diff_min=p.diff_min,
        )
        back = [order.index(axis) for axis in range(rank)]
        value = transposed(rw, rw.insert(made).results[0], back)
        for use, group in distinct(match.uses):
            deliver(rw, group, rescaled(rw, value, use))
