"""Remove copies: values of the IR are immutable, so a copy is its operand.

`clone`, `contiguous`, `detach`, `alias` and `lift_fresh_copy` matter to eager PyTorch, where
tensors are written to and have strides. Here neither is so: a value has elements in a shape, and
the memory format of inputs and outputs stands in the signature. A copy that asks for another
memory format is kept, as is one whose strides `as_strided` looks at.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %a = aten.clone.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %b = aten.contiguous.default(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %c = aten.detach.default(%b) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %d = aten.alias.default(%c) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %e = aten.lift_fresh_copy.default(%d) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.neg.default(%e) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.neg.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.translate.rewrites.aten.attention_pattern import LAYOUT
from stepwell.translate.rewrites.aten.forwarding import ForwardOperand

OBSERVERS = frozenset(("aten.as_strided.default", "aten.as_strided_copy.default"))
"""Ops whose result depends on the strides of their operand."""

KEPT = ("preserve_format", "contiguous_format", "0", "1")
"""Memory formats that ask for nothing new, by name and as schemas number them."""


@dataclass(frozen=True)
class RemoveCopy(ForwardOperand):
    """`x.clone()` and its like to `x`."""

    name: ClassVar[str] = "remove-copy"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.CloneDefault,
        aten.ContiguousDefault,
        aten.DetachDefault,
        aten.DetachCopyDefault,
        aten.AliasDefault,
        aten.AliasCopyDefault,
        aten.LiftFreshCopyDefault,
    )

    def has_effect(self, op: SchemaOp, program: Program) -> Refusal | bool:
        """Whether strides are asked for, by the op itself or by one that reads its result."""
        return changes_layout(op) or strides_are_observed(op) or False


def changes_layout(op: SchemaOp) -> Refusal | None:
    """The op asks for a memory format other than row-major or its operand's."""
    if "memory_format" not in op.SCHEMA.by_name:
        return None
    wanted = op.arg("memory_format")
    if wanted is None or str(wanted).rsplit(".", 1)[-1] in KEPT:
        return None
    return Refusal(f"it asks for memory format {wanted}")


def strides_are_observed(op: SchemaOp) -> Refusal | None:
    """An `as_strided` reads the result, perhaps through views."""
    stack: list[SSAValue] = list(op.results)
    while stack:
        for use in stack.pop().uses:
            if use.operation.name in OBSERVERS:
                return Refusal(f"{use.operation.name} reads the strides of the copy")
            if use.operation.name in LAYOUT:
                stack.extend(use.operation.results)
    return None
