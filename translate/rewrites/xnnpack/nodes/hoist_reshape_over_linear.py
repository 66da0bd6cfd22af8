"""Give rows their later shape ahead of the layers that work on them, where a reshape stands already.

A linear layer, and what stands between layers, works on rows in any shape: a reshape behind a
chain of them that keeps whole rows meets the reshape in front of the chain, however long it is.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<5x4xf32>
    %a = xnnpack.static_reshape(%x, new_shape=[6, 4]) : (tensor<2x3x4xf32>) -> tensor<6x4xf32>
    %b = xnnpack.fully_connected(%a, %w) : (tensor<6x4xf32>, tensor<5x4xf32>) -> tensor<6x5xf32>
    %c = xnnpack.gelu(%b) : (tensor<6x5xf32>) -> tensor<6x5xf32>
    %y = xnnpack.static_reshape(%c, new_shape=[3, 2, 5]) : (tensor<6x5xf32>) -> tensor<3x2x5xf32>
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<5x4xf32>
    %a = xnnpack.static_reshape(%x, new_shape=[6, 4]) : (tensor<2x3x4xf32>) -> tensor<6x4xf32>
    %0 = xnnpack.static_reshape(%a, new_shape=[3, 2, 4]) : (tensor<6x4xf32>) -> tensor<3x2x4xf32>
    %b = xnnpack.fully_connected(%0, %w) : (tensor<3x2x4xf32>, tensor<5x4xf32>) -> tensor<3x2x5xf32>
    %y = xnnpack.gelu(%b) : (tensor<3x2x5xf32>) -> tensor<3x2x5xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.dialects.xnnpack.elementwise import Unary
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Rewrite, Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.types import dims, element, is_static, tensor
from stepwell.translate.rewrites.xnnpack.placing.merge_transposes import reshaped


@dataclass(frozen=True)
class ReshapedRows:
    """A reshape that keeps the rows of a chain of row-wise nodes, whose input is a reshape too.

    The chain is listed from its end; each node reads rows as its first operand.
    """

    op: XnnpackOp
    chain: tuple[XnnpackOp, ...]


@dataclass(frozen=True)
class HoistReshapeOverLinear(Rewrite[ReshapedRows]):
    """`reshape(linear(reshape(x)))` to `linear(reshape(x))`: rows are rows in any shape."""

    name: ClassVar[str] = "hoist-reshape-over-linear"
    anchors: ClassVar[tuple[type[Operation], ...]] = (xnnpack.StaticReshape,)

    def match(self, op: XnnpackOp, program: Program) -> ReshapedRows | None:
        """Guards: only the chain reads itself, its input is a reshape, the last axis stays."""
        before, after = dims(op.operands[0].type), dims(op.output.type)
        if not before or not after or before[-1] != after[-1]:
            return None
        chain: list[XnnpackOp] = []
        value = op.operands[0]
        while (node := _row_wise(value)) is not None:
            if not value.has_one_use():
                return None
            chain.append(node)
            value = node.operands[0]
        if not isinstance(value.owner, xnnpack.StaticReshape) or not is_static(value.type):
            return None
        if not any(isinstance(node, xnnpack.FullyConnected) for node in chain):
            return None
        return ReshapedRows(op, tuple(chain))

    def build(self, match: ReshapedRows, rw: Rewriter) -> None:
        """The rows in their later shape, then the chain."""
        leading = dims(match.op.output.type)[:-1]
        value = match.chain[-1].operands[0]
        value = reshaped(rw, value, tensor([*leading, dims(value.type)[-1]], element(value.type)))
        for node in reversed(match.chain):
            held = node.output.type
            type_ = tensor([*leading, dims(held)[-1]], element(held))
            new = remade(node, [value, *node.operands[1:]], [type_])
            new.results[0].name_hint = node.output.name_hint
            value = rw.insert(new).results[0]
            new.location = node.location
        rw.replace(match.op, [value])


def _row_wise(value: SSAValue) -> XnnpackOp | None:
    """The node that makes a value row by row of its first operand, if one does.

    Rows that a layer reads quantised at run time have one scale each, whatever their shape.
    """
    node = value.owner
    return node if isinstance(node, xnnpack.FullyConnected | Unary) else None
