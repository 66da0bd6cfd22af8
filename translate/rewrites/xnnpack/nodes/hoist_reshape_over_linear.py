"""Hoisting: move a reshape of rows before the layers that work on rows, to meet another reshape.

A linear layer, and the ops between layers, work on rows in any shape. A reshape that keeps whole
rows can therefore move before a chain of such ops of any length, where it meets another reshape.

rule hoist-reshape-over-linear
    The rows in their later shape, then the chain.
Before:
    %y = xnnpack.static_reshape(%x, …) : (tensor<$*S x $C x $E>) -> tensor<$*T x $C x $E>
After:
    %y = worked_through($chain, $T)
with $chain = chain_of_rows(%x)
for %w = weight : tensor<5 x 4 x f32>
for %a = xnnpack.static_reshape(%z, new_shape=[6, 4]) : (…) -> $A
for %b = xnnpack.fully_connected(%a, %w)
for %x = xnnpack.tanh(%b)
for %z = "tensor<2x3x4xf32>", $A = "tensor<6x4xf32>", $S = [6], $T = [3, 2], $C = 5
for $E = f32, $new_shape = [3, 2, 5]
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.dialects.xnnpack.elementwise import Unary
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.types import Dim, dims, element, is_static, tensor
from stepwell.translate.rewrites.xnnpack.partitioning.merge_transposes import reshaped
from stepwell.translate.rules import read_rules

Chain = tuple[XnnpackOp, ...]
"""Nodes that work row by row of their first operand, the last one first."""


def chain_of_rows(value: SSAValue) -> Chain | None:
    """Return the nodes between a value and a reshape; each is read only by the next, and one is a
    layer.

    Rows that a layer reads dynamically quantized have one scale each, whatever their shape.
    """
    chain: list[XnnpackOp] = []
    while isinstance(node := value.owner, xnnpack.FullyConnected | Unary):
        if not value.has_one_use():
            return None
        chain.append(node)
        value = node.operands[0]
    if not isinstance(value.owner, xnnpack.StaticReshape) or not is_static(value.type):
        return None
    has_layer = any(isinstance(node, xnnpack.FullyConnected) for node in chain)
    return tuple(chain) if has_layer else None


def worked_through(rw: Rewriter, chain: Chain, leading: Sequence[Dim]) -> SSAValue:
    """Build the nodes of a chain again, on its input rows reshaped to other leading axes."""
    value = chain[-1].operands[0]
    value = reshaped(rw, value, tensor([*leading, dims(value.type)[-1]], element(value.type)))
    for node in reversed(chain):
        old = node.output.type
        type_ = tensor([*leading, dims(old)[-1]], element(old))
        new = remade(node, [value, *node.operands[1:]], [type_])
        new.results[0].name_hint = node.output.name_hint
        value = rw.insert(new).results[0]
        new.location = node.location
    return value


(HoistReshapeOverLinear,) = RULES = read_rules(__doc__, globals())
