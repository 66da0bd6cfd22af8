"""Take the maximum behind a RESCALE that is there already, not a RESCALE of the maximum.

A softmax subtracts the maximum of its row, both at the scale of the difference: one RESCALE serves
the row and its maximum, for RESCALE never turns an order around.

Before:
    %m = stepwell.weight <"m"> "constant" : tensor<1xi32>
    %s = stepwell.weight <"s#ones"> "constant" : tensor<1xi8>
    %z = stepwell.weight <"z"> "constant" : tensor<1xi8>
    %o = stepwell.weight <"o#zeros"> "constant" : tensor<1xi32>
    %r = tosa.rescale %x, %m, %s, %z, %o {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x4xi32>
    %g = tosa.reduce_max %x {axis = 1 : i32} : (tensor<2x4xi8>) -> tensor<2x1xi8>
    %q = tosa.rescale %g, %m, %s, %z, %o {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x1xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x1xi32>
    %y = tosa.sub %r, %q : (tensor<2x4xi32>, tensor<2x1xi32>) -> tensor<2x4xi32>
After:
    %m = stepwell.weight <"m"> "constant" : tensor<1xi32>
    %s = stepwell.weight <"s#ones"> "constant" : tensor<1xi8>
    %z = stepwell.weight <"z"> "constant" : tensor<1xi8>
    %o = stepwell.weight <"o#zeros"> "constant" : tensor<1xi32>
    %r = tosa.rescale %x, %m, %s, %z, %o {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x4xi32>
    %0 = tosa.rescale %x, %m, %s, %z, %o {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x4xi32>
    %q = tosa.reduce_max %0 {axis = 1 : i32} : (tensor<2x4xi32>) -> tensor<2x1xi32>
    %y = tosa.sub %r, %q : (tensor<2x4xi32>, tensor<2x1xi32>) -> tensor<2x4xi32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of


@dataclass(frozen=True)
class Reduced:
    """`op` rescales what `reduction` takes of a value that is rescaled alike elsewhere."""

    op: t.RescaleOp
    reduction: t.ReduceMaxOp | t.ReduceMinOp


@dataclass(frozen=True)
class HoistRescaleOverMaximum(Rewrite[Reduced]):
    """`rescale(max(x))` beside `rescale(x)` to `max(rescale(x))`."""

    name: ClassVar[str] = "hoist-rescale-over-maximum"
    anchors: ClassVar[tuple[type[Operation], ...]] = (t.RescaleOp,)

    def match(self, op: t.RescaleOp, program: Program) -> Reduced | Refusal | None:
        """The value is rescaled by the same numbers elsewhere, its maximum here alone."""
        reduction = op.input.owner
        if not isinstance(reduction, t.ReduceMaxOp | t.ReduceMinOp):
            return None
        if not reduction.output.has_one_use():
            return Refusal("another op reads the maximum as it is")
        if not any(is_alike(use.operation, op) for use in reduction.input.uses):
            return Refusal("nothing rescales the row by the same numbers")
        if not keeps_order(op, program):
            return Refusal("its multiplier may be negative, which turns the order of rows")
        return Reduced(op, reduction)

    def build(self, match: Reduced, rw: Rewriter) -> None:
        """The twin once more, which common subexpressions share, and the reduction behind it."""
        op, reduction, b = match.op, match.reduction, Builder(rw)
        x, held = reduction.input, element(op.output.type)
        operands = [x, *op.operands[1:]]
        wide = b.op(t.RescaleOp, operands, shape_of(x), held, **op.properties)
        axis = reduction.axis
        assert isinstance(axis, IntegerAttr)
        rw.replace(op, [b.reduce(type(reduction), wide, axis.value.data)])


def is_alike(other: Operation, op: t.RescaleOp) -> bool:
    """Whether an operator rescales by the same numbers to the same type."""
    if not isinstance(other, t.RescaleOp):
        return False
    if other.properties != op.properties or element(other.output.type) != element(op.output.type):
        return False
    pairs = zip(other.operands[1:], op.operands[1:], strict=True)
    return all(is_same(a, b) for a, b in pairs)


def keeps_order(op: t.RescaleOp, program: Program) -> bool:
    """Whether a greater value is rescaled to no smaller one."""
    key = weight_key(op.multiplier)
    if key is None:
        return False
    numbers = program.weights.get(key)
    return numbers.numel() == 1 and int(numbers) >= 0


def is_same(a: SSAValue, b: SSAValue) -> bool:
    """Whether two values are one, or one constant."""
    key = weight_key(a)
    return a is b or (key is not None and key == weight_key(b))
