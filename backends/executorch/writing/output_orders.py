"""Find outputs that need no copy, because their declared layout is that of a permute's operand.

PyTorch's `stft` and modules with a channels-last result return a transposed tensor: sizes in one
order, and elements in another. Such an output is the operand of the last permute, declared with
another order of its axes.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import cast

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from stepwell.backends.executorch.kernels.kernel_calls import is_reshape
from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.maps import inverse
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.signature import get_signature
from stepwell.ir.types import dims, is_static


def output_orders(
    func: FuncOp, in_place: Container[Operation]
) -> Mapping[Operation | Block, tuple[int, ...]]:
    """Return the dim order of each permute that is only read as an output, and of `view_as_real`
    on such a permute; `in_place` are the ops that write to an operand.
    """
    returned = func.body.block.last_op
    if not isinstance(returned, ReturnOp) or any(
        isinstance(op, UpdateOp | MutateInputOp) for op in func.body.block.ops
    ):
        return {}
    orders: dict[Operation | Block, tuple[int, ...]] = {}
    ports = [port for port in get_signature(func).outputs if port.constant is None]
    for port, value in zip(ports, returned.operands, strict=True):
        parts = _read_once(value, aten.ViewAsRealDefault)
        permute = _read_once(parts.operands[0] if parts else value, aten.PermuteDefault)
        if permute is None or not _is_own(permute.operands[0], in_place):
            continue
        moved = permute.arg("dims")
        order = inverse([axis % len(moved) for axis in moved])
        whole = (*order, len(order)) if parts else order
        if port.dim_order == whole:
            orders[permute] = order
            if parts is not None:
                orders[parts] = whole
    return orders


def _read_once(value: SSAValue, kind: type[SchemaOp]) -> SchemaOp | None:
    """Return the op of a kind that computes a value of constant shape, if it is read once."""
    owner = value.owner
    is_static_one = isinstance(owner, kind) and is_static(value.type) and len(dims(value.type)) > 0
    return cast(SchemaOp, owner) if is_static_one and value.has_one_use() else None


def _is_own(value: SSAValue, in_place: Container[Operation]) -> bool:
    """Whether a value has memory of its own and one reader."""
    owner = value.owner
    if not isinstance(owner, Operation) or isinstance(owner, WeightOp | StateOp):
        return False
    is_alias = isinstance(owner, SchemaOp) and is_reshape(owner)
    return not is_alias and owner not in in_place and value.has_one_use()
