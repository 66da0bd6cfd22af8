"""Rescale bytes for each reader, not once for all of them.

Vela makes one operator on bytes of RESCALE and the ADD, MUL or REDUCE_SUM that reads it, if nothing
else does; a RESCALE of several readers leaves int32 behind, and operators on those. An attention of
ExecuTorch's quantised encoder (the sum of exponentials and the product with its reciprocal) took
twelve times the cycles on a U85.

Before:
    %m = stepwell.weight <"m"> "constant" : tensor<1xi32>
    %s = stepwell.weight <"s#ones"> "constant" : tensor<1xi8>
    %z = stepwell.weight <"z"> "constant" : tensor<1xi8>
    %o = stepwell.weight <"o#zeros"> "constant" : tensor<1xi32>
    %r = tosa.rescale %x, %m, %s, %z, %o {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x8xi32>
    %y = tosa.reduce_sum %r {axis = 1 : i32} : (tensor<2x8xi32>) -> tensor<2x1xi32>
    %w = tosa.add %r, %y : (tensor<2x8xi32>, tensor<2x1xi32>) -> tensor<2x8xi32>
    func.return %y, %w : tensor<2x1xi32>, tensor<2x8xi32>
After:
    %m = stepwell.weight <"m"> "constant" : tensor<1xi32>
    %s = stepwell.weight <"s#ones"> "constant" : tensor<1xi8>
    %z = stepwell.weight <"z"> "constant" : tensor<1xi8>
    %o = stepwell.weight <"o#zeros"> "constant" : tensor<1xi32>
    %r = tosa.rescale %x, %m, %s, %z, %o {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x8xi32>
    %y = tosa.reduce_sum %r {axis = 1 : i32} : (tensor<2x8xi32>) -> tensor<2x1xi32>
    %again = tosa.rescale %x, %m, %s, %z, %o {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x8xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x8xi32>
    %w = tosa.add %again, %y : (tensor<2x8xi32>, tensor<2x1xi32>) -> tensor<2x8xi32>
    func.return %y, %w : tensor<2x1xi32>, tensor<2x8xi32>
"""

from __future__ import annotations

from typing import ClassVar

from xdsl.ir import Operation, Use

from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import i8, i16, i32
from stepwell.ir.program import Program
from stepwell.ir.records import dataclass
from stepwell.ir.rewriting.rewrite import Rewrite, Rewriter
from stepwell.ir.types import element


@dataclass(frozen=True)
class SharedRescale:
    """`uses` are those of the RESCALE's readers after the first."""

    op: t.RescaleOp
    uses: tuple[Use, ...]


@dataclass(frozen=True)
class RescaleForEachReader(Rewrite[SharedRescale]):
    """A RESCALE of bytes to int32 for each operator that reads it."""

    name: ClassVar[str] = "rescale-for-each-reader"
    anchors: ClassVar[tuple[type[Operation], ...]] = (t.RescaleOp,)

    def match(self, op: t.RescaleOp, program: Program) -> SharedRescale | None:
        """Several readers in one block; one that reads it twice is one."""
        if element(op.input.type) not in (i8, i16) or element(op.output.type) != i32:
            return None
        uses = [use for use in op.output.uses if use.operation.parent is op.parent]
        if len({use.operation for use in uses}) < 2:
            return None
        first: Operation = op
        while first not in (use.operation for use in uses):
            assert first.next_op is not None
            first = first.next_op
        return SharedRescale(op, tuple(use for use in uses if use.operation is not first))

    def build(self, match: SharedRescale, rw: Rewriter) -> None:
        """One copy a reader, which stands before it."""
        copies: dict[Operation, Operation] = {}
        for use in match.uses:
            reader = use.operation
            if reader not in copies:
                copies[reader] = rw.insert(match.op.clone(), before=reader)
            rw.set_operand(reader, use.index, copies[reader].results[0])
