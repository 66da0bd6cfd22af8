"""Memory layout of values: whether they are dense and row-major."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, SSAValue

from stepwell.dialects.aten import CloneDefault, ContiguousDefault
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import weight_key
from stepwell.ir.declared.families import is_of
from stepwell.ir.program import Program
from stepwell.ir.signature import get_signature
from stepwell.ir.types import dims

QUANTIZERS = frozenset(
    f"quantized_decomposed.{name}_per_tensor.default" for name in ("quantize", "dequantize")
)
"""Elementwise ops of PT2E's library, which has no tags."""


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether strides are dense and row-major; axes of size 1 may have any stride."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def is_fresh(value: SSAValue) -> bool:
    """Whether the op that computes a value allocates its result, which is then dense."""
    owner = value.owner
    return isinstance(owner, SchemaOp) and not owner.SCHEMA.returns[0].aliases_input


def is_laid_out(value: SSAValue) -> bool:
    """Whether a value is computed by an op whose result is always row-major."""
    op = value.owner
    if not isinstance(op, ContiguousDefault | CloneDefault):
        return False
    return op.arg("memory_format") == "contiguous_format"


def keeps_layout(value: SSAValue) -> bool:
    """Whether a value is computed elementwise, so that PyTorch lays it out like its operands.

    The operands have the result's shape, or one element.
    """
    owner = value.owner
    if not isinstance(owner, SchemaOp):
        return False
    if owner.name not in QUANTIZERS and not is_of(owner, "elementwise"):
        return False
    shapes = [dims(v.type) for v in owner.operands if isinstance(v.type, TensorType)]
    own = dims(value.type)
    return own in shapes and all(own == shape or set(shape) <= {1} for shape in shapes)


def layouts_of(value: SSAValue) -> list[SSAValue]:
    """Return the operands that determine the memory layout of an elementwise op's result."""
    owner = value.owner
    assert isinstance(owner, SchemaOp)
    own = dims(value.type)
    return [v for v in owner.operands if isinstance(v.type, TensorType) and dims(v.type) == own]


def is_row_major(value: SSAValue, program: Program) -> bool:
    """Whether a value is provably dense and row-major."""
    if (key := weight_key(value)) is not None:
        weight = program.weights.get(key)
        return weight.is_contiguous() and weight.storage_offset() == 0
    if not isinstance(value, BlockArgument):
        if is_laid_out(value):
            return True
        if not is_fresh(value):
            return False
        if sum(size != 1 for size in dims(value.type)) <= 1:
            return True
        return keeps_layout(value) and all(
            is_row_major(operand, program) for operand in layouts_of(value)
        )
    func = value.owner.parent_op()
    if not isinstance(func, FuncOp):
        return False
    order = get_signature(func).runtime_inputs[value.index].dim_order
    return order is None or order == tuple(range(len(order)))
