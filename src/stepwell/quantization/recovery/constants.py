"""Replacement of a program's constants."""

from __future__ import annotations

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from stepwell.ir.compat.xdsl.xdsl_private import set_type
from stepwell.ir.core import WeightOp
from stepwell.ir.program import Program
from stepwell.ir.types import WeightAttr

BALANCED = "balanced"
"""Marker in the keys of float constants whose channels were scaled."""


def renew(
    program: Program, op: Operation, at: int, tensor: torch.Tensor, why: str = "cured"
) -> None:
    """Replace a constant operand of an op; other users of the old constant keep it."""
    old = op.operands[at].owner
    assert isinstance(old, WeightOp)
    new = old.clone()
    key = program.weights.constant(tensor.contiguous(), f"{old.key.data}.{why}")
    new.properties["key"] = WeightAttr(key)
    set_type(new.result, TensorType(old.result.type.element_type, tensor.shape))
    block = old.parent
    assert block is not None
    block.insert_op_after(new, old)
    op.operands[at] = new.results[0]
