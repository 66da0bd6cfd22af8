"""Linear layers to fully-connected nodes.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>
    %y = aten.linear.default(%x, %w) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>
    %y = xnnpack.fully_connected(%x, %w) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.core import weight_key
from stepwell.ir.numerics import FLUSHED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites.building import view
from stepwell.translate.rewrites.xnnpack.nodes.guards import (
    not_constant,
    not_for_xnnpack,
    not_static,
)


@dataclass(frozen=True)
class Linear:
    """A linear layer with weight `[out, in]` and bias `[out]`."""

    op: SchemaOp
    bias: SSAValue | None


@dataclass(frozen=True)
class LowerLinear(Rewrite[Linear]):
    """`aten.linear` with any leading axes to `xnnpack.fully_connected`."""

    name: ClassVar[str] = "lower-linear"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.LinearDefault,)
    bound: ClassVar[Bound] = roundings("sums in another order")
    deviation: ClassVar[Deviation | None] = FLUSHED

    def match(self, op: SchemaOp, program: Program) -> Linear | Refusal | None:
        """Guards: float elements, constant bias; a runtime weight must be static in shape."""
        bias = op.operand("bias")
        for refusal in (
            not_for_xnnpack(op),
            not_static(op.operands[1]),
            not_constant(bias, "bias"),
        ):
            if refusal is not None:
                return refusal
        if len(dims(op.operands[1].type)) != 2:
            return Refusal("the weight is a vector")
        return Linear(op, bias)

    def build(self, match: Linear, rw: Rewriter) -> None:
        """A vector input gets a leading axis; beside a weight computed at run time, the runtime
        crashes on a bias, which is added behind.
        """
        op = match.op
        value, result = op.operands[0], op.results[0]
        is_vector = len(dims(value.type)) == 1
        if is_vector:
            value = view(rw, value, [1, *dims(value.type)])
        computed = weight_key(op.operands[1]) is None
        bias = None if computed else match.bias
        operands = [value, op.operands[1], *([bias] if bias else [])]
        new = xnnpack.FullyConnected.make(*operands, result=None if is_vector else result.type)
        output: SSAValue = rw.insert(new).results[0]
        if is_vector:
            output = view(rw, output, dims(result.type))
        if computed and match.bias is not None:
            added = aten.AddTensor.make(output, match.bias, result_types=[result.type])
            output = rw.insert(added).results[0]
        rw.replace(op, [output])
