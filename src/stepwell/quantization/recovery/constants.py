"""Constants of a program exchanged for others."""

from __future__ import annotations

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from stepwell.ir.compat.xdsl.xdsl_private import set_type
from stepwell.ir.core import WeightOp
from stepwell.ir.program import Program
from stepwell.ir.types import WeightAttr

BALANCED = "balanced"
"""In keys of constants of floats whose channels were scaled."""


def renew(
    program: Program, op: Operation, at: int, tensor: torch.Tensor, why: str = "cured"
) -> None:
    """Give an op another constant; the one that it read may have other readers."""
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
