"""A static estimate of an op's work: enough to put the heavy ops of a table first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation

from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import op_name
from stepwell.ir.types import dims

_PRODUCTS = (
    *("linear", "addmm", "mm", "bmm", "baddbmm", "matmul", "fully_connected", "fullyconnected"),
    *("batch_matmul", "batch_matrix_multiply"),
)
FREE = frozenset({"quant.scast", "tosa.const", "tosa.const_shape", "openvino.Constant"})
"""Ops of which nothing remains at run time: casts between types of one storage, constants."""

BY_CLASS: dict[type[Operation], Callable[[Any], int]] = {}
"""The work of ops that plug-ins brought."""


def size(type_: Attribute) -> int:
    """Return the number of elements of a tensor; a symbolic dimension counts as 1."""
    if not isinstance(type_, TensorType):
        return 1
    return prod(d if isinstance(d, int) else 1 for d in dims(type_))


def operations(op: Operation) -> int:
    """Return the multiply-adds of a matrix product, convolution or attention; for other ops,
    the number of written elements.
    """
    if isinstance(op, WeightOp | StateOp | UpdateOp | MutateInputOp) or op.name in FREE:
        return 0
    if type(op) in BY_CLASS:
        return BY_CLASS[type(op)](op)
    written = sum(size(result.type) for result in op.results)
    parts = op_name(op).split(".")
    kind = (parts[1] if len(parts) > 1 else parts[0]).lower().removeprefix("quantized_")
    operands = [operand.type for operand in op.operands]
    if "scaled_dot_product" in kind and len(operands) > 1:
        return 2 * written * _dim(operands[1], -2)
    if "conv" in kind and len(operands) > 1:
        stored = _shape(operands[1])
        if "depthwise" in kind:  # `[1, h, w, channels]`; TOSA: `[h, w, channels, multiplier]`.
            return written * prod(stored[:2] if parts[0] == "tosa" else stored[1:3])
        return written * prod(stored[2 if kind == "groupconvolution" else 1 :])
    if kind in _PRODUCTS and operands:
        first = operands[1] if kind in ("addmm", "baddbmm") and len(operands) > 2 else operands[0]
        return written * _dim(first, -1)
    if op.regions:
        return sum(operations(inner) for inner in op.walk() if inner is not op)
    return written


def _shape(type_: Attribute) -> Sequence[int]:
    if not isinstance(type_, TensorType):
        return (1,)
    return [d if isinstance(d, int) else 1 for d in dims(type_)] or (1,)


def _dim(type_: Attribute, axis: int) -> int:
    shape = _shape(type_)
    return shape[axis] if len(shape) >= abs(axis) else 1
