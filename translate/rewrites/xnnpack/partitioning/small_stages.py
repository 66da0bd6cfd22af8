"""Replace nodes that cost less as kernels than in an XNNPACK delegate.

A call of a delegate takes longer than a view, or than a product of numbers and a constant vector.
"""

from __future__ import annotations

from operator import ne

from xdsl.ir import Block, Operation
from xdsl.rewriter import Rewriter

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack import Multiply, StaticReshape, StaticSlice, XnnpackOp
from stepwell.ir.compat.xdsl.xdsl_private import operands_of
from stepwell.ir.core import WeightOp
from stepwell.ir.dtypes import f32
from stepwell.ir.types import dims, element, is_static


def _kernels(op: Operation) -> list[Operation]:
    """Return the ops outside delegates that read the results of a node."""
    users = (use.operation for result in op.results for use in result.uses)
    return [user for user in users if not isinstance(user, XnnpackOp)]


def leave_to_kernels(ops: list[Operation]) -> bool:
    """Replace the nodes of a stage that kernels read, if they cost less as kernels.

    Returns:
        Whether nodes were replaced.
    """
    small = _needed_by_kernels(ops)
    if not _is_small(small):
        return False
    for op in small:
        _replace_by_kernel(op)
    return True


def _needed_by_kernels(ops: list[Operation]) -> list[Operation]:
    """Return the nodes of a stage that kernels read, directly or through other nodes of it."""
    needed: dict[Operation, None] = {}
    for op in reversed(ops):
        users = [use.operation for result in op.results for use in result.uses]
        if any(user in needed or not isinstance(user, XnnpackOp) for user in users):
            needed[op] = None
    return list(reversed(needed))


def _is_small(ops: list[Operation]) -> bool:
    """Whether nodes between kernels cost less as kernels: reshapes, slices of one axis, and at most
    one product of f32 numbers and a constant vector.
    """
    inside = set(ops)
    products = [op for op in ops if not isinstance(op, StaticReshape | StaticSlice)]
    if not ops or len(products) > 1 or not all(map(_has_kernel_form, ops)):
        return False
    operands = [value.owner for op in ops for value in operands_of(op)]
    users = [user for op in ops for user in _kernels(op)]
    around = {*operands, *users} - inside
    return all(isinstance(op, SchemaOp | WeightOp | Block) for op in around)


def _has_kernel_form(op: Operation) -> bool:
    """Whether `_replace_by_kernel` has a kernel for a node."""
    type_ = op.results[0].type
    if element(type_) != f32:
        return False
    result = dims(type_)
    match op:
        case StaticReshape():
            return True
        case StaticSlice():
            return is_static(type_) and sum(map(ne, dims(op.input.type), result)) == 1
        case Multiply():
            x, factor = op.operands
            is_vector = isinstance(factor.owner, WeightOp) and dims(factor.type) == result[-1:]
            is_whole = is_static(type_) and dims(x.type) == result
            return op.output_range is None and is_vector and is_whole
        case _:
            return False


def _replace_by_kernel(op: Operation) -> None:
    """Replace a node of a small stage by the operator with the same result."""
    type_ = op.results[0].type
    match op:
        case Multiply():
            new = aten.MulTensor.make(*op.operands)
        case StaticSlice():
            pairs = zip(dims(op.input.type), dims(type_), strict=True)
            at = next(index for index, (held, cut) in enumerate(pairs) if held != cut)
            start, size = op.ints("offsets")[at], dims(type_)[at]
            assert isinstance(size, int)
            new = aten.SliceTensor.make(op.input, at, start, start + size, 1, result_types=[type_])
        case _:
            assert isinstance(op, StaticReshape)
            sizes = [size or -1 for size in op.ints("new_shape")]
            new = aten.ViewDefault.make(op.input, sizes, result_types=[type_])
    new.location = op.location
    Rewriter.replace_op(op, new)
