"""Overflow checks of the kernels' int32 accumulators, exact for a program's actual weights."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from xdsl.ir import SSAValue

from stepwell.dialects.cmsis.arithmetic import offset_rows, row_overflows
from stepwell.dialects.cmsis.ops import QuantizedLinear
from stepwell.dialects.cmsis.ops.base import per_tensor
from stepwell.dialects.cmsis.ops.spatial import Spatial
from stepwell.dialects.quant import StorageCast
from stepwell.ir.core import weight_key
from stepwell.ir.diagnostics import Problem, describe_op
from stepwell.ir.program import Program


def limit_problems(program: Program) -> Iterator[Problem]:
    """Every row of a linear layer or convolution whose sum can overflow int32 for some input."""
    for op in program.module.walk():
        if isinstance(op, QuantizedLinear | Spatial):
            weight = _constant(op.operands[1], program)
            if weight is None:
                continue
            bias = _constant(op.bias, program)
            for fact in _row_problems(op, weight, bias):
                yield Problem(f"{op.name}: {fact}", describe_op(op), "scale the layer down")


def _row_problems(
    op: QuantizedLinear | Spatial, weight: torch.Tensor, bias: torch.Tensor | None
) -> Iterator[str]:
    if isinstance(op, QuantizedLinear):
        rows, padded = offset_rows(weight, op.number("filter_offset")), False
    else:
        rows, padded = weight.movedim(op.CHANNEL_AXIS, 0).flatten(1), True
    offset = op.number("input_offset")
    tensor = per_tensor(op.operands[0])
    low, high = (tensor.low, tensor.high) if tensor is not None else (-128, 127)
    low, high = low + offset, high + offset
    if padded:
        low, high = min(low, 0), max(high, 0)
    for row_overflow in row_overflows(rows, bias, low, high, op.numbers("requantize_shifts")):
        reach = f"{row_overflow.low} … {row_overflow.high}"
        if row_overflow.in_sum:
            yield f"row {row_overflow.row} can accumulate {reach}, past int32"
        else:
            yield f"row {row_overflow.row}: requantizing {reach} overflows int32"


def _constant(value: SSAValue | None, program: Program) -> torch.Tensor | None:
    if value is None:
        return None
    maker = value.owner
    key = weight_key(maker.input if isinstance(maker, StorageCast) else value)
    return None if key is None else program.weights.get(key)
