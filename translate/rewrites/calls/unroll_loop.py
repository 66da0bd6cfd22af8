"""Loop unrolling: write `map` and `scan` over a known number of steps as copies of their body.

Each step takes a slice of every sequence. The values that it carries go to the next step, and its
other results are stacked along a new first axis. The constants that a body reads become constants
of the step.

Before:
    func.func @forward(%x: tensor<2x3xf32>, %c: tensor<3xf32>) -> (tensor<3xf32>, tensor<2x3xf32>) {
      %a, %b = control.scan(%c) over (%x) with () : (tensor<3xf32>), (tensor<2x3xf32>), () -> (tensor<3xf32>, tensor<2x3xf32>) {
      ^bb0(%s: tensor<3xf32>, %i: tensor<3xf32>):
        %t = aten.add.Tensor(%s, %i) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
        %u = aten.relu.default(%t) : (tensor<3xf32>) -> tensor<3xf32>
        control.yield %t, %u : tensor<3xf32>, tensor<3xf32>
      }
      func.return %a, %b : tensor<3xf32>, tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>, %c: tensor<3xf32>) -> (tensor<3xf32>, tensor<2x3xf32>) {
      %0 = aten.select.int(%x, 0, 0) : (tensor<2x3xf32>) -> tensor<3xf32>
      %1 = aten.add.Tensor(%c, %0) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %2 = aten.relu.default(%1) : (tensor<3xf32>) -> tensor<3xf32>
      %3 = aten.select.int(%x, 0, 1) : (tensor<2x3xf32>) -> tensor<3xf32>
      %a = aten.add.Tensor(%1, %3) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %4 = aten.relu.default(%a) : (tensor<3xf32>) -> tensor<3xf32>
      %b = aten.stack.default([%2, %4]) : (tensor<3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
      func.return %a, %b : tensor<3xf32>, tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.control import MapOp, ScanOp, YieldOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.building import emit

MOST_OPS = 10_000
"""Ops of all steps together: the number that a target lowers in about ten seconds."""


@dataclass(frozen=True)
class Unrolled:
    """A loop and its number of steps."""

    op: MapOp | ScanOp
    steps: int


@dataclass(frozen=True)
class UnrollLoop(Rewrite[Unrolled]):
    """Replace `map` and `scan` by copies of their bodies, one after the other."""

    name: ClassVar[str] = "unroll-loop"
    anchors: ClassVar[tuple[type[Operation], ...]] = (MapOp, ScanOp)
    bound: ClassVar[Bound] = EXACT
    takes_empty: ClassVar[bool] = False

    def match(self, op: MapOp | ScanOp, program: Program) -> Unrolled | Refusal | None:
        """Match loops with a static number of steps whose copies are not too many ops."""
        steps = dims(op.sequences[0].type)[0]
        if not isinstance(steps, int):
            return Refusal(f"the number of steps, {steps}, is symbolic")
        count = steps * sum(1 for _ in op.body.walk())
        if count > MOST_OPS:
            return Refusal(f"{steps} steps would be {count} ops, more than {MOST_OPS}")
        return Unrolled(op, steps)

    def build(self, match: Unrolled, rw: Rewriter) -> None:
        """Build the copies of the body, then stack their results."""
        op = match.op
        carried = list(op.initial) if isinstance(op, ScanOp) else []
        count = len(carried)
        given: list[list[SSAValue]] = []
        for step in range(match.steps):
            slices = [_slice(sequence, step, rw) for sequence in op.sequences]
            values = _copied(op.body.block, [*carried, *slices, *op.additional], rw)
            carried = values[:count]
            given.append(values[count:])
        stacked = [
            emit(rw, aten.StackDefault.make(list(parts), result_types=[result.type]))
            for parts, result in zip(zip(*given, strict=True), op.results[count:], strict=True)
        ]
        rw.replace(op, [*carried, *stacked])


def _slice(sequence: SSAValue, step: int, rw: Rewriter) -> SSAValue:
    """Build `sequence[step]`, the slice that one step of a scan reads."""
    result = tensor(dims(sequence.type)[1:], element(sequence.type))
    return emit(rw, aten.SelectInt.make(sequence, 0, step, result_types=[result]))


def _copied(body: Block, given: list[SSAValue], rw: Rewriter) -> list[SSAValue]:
    """Return the values that a copy of a body yields for these arguments."""
    values: dict[SSAValue, SSAValue] = dict(zip(body.args, given, strict=True))
    for op in body.ops:
        if isinstance(op, YieldOp):
            return [values[value] for value in op.values]
        rw.insert(op.clone(value_mapper=values))
    raise AssertionError("a body ends in control.yield")
