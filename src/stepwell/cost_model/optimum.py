"""`stepwell explain --optimum`: is there an equal program that the pipeline makes a cheaper one of?

Proved rules are applied forwards and backwards at every place, breadth first, until there are as
many programs as are asked for; each is lowered, and the target's own costs say what the result
takes. What is cheaper than what the pipeline makes of the program as it is shows a rewrite that is
missing, or an order that is wrong. Rules are not translated into another tool's patterns: most ask
conditions of types and numbers that only their own matchers know.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from stepwell.cost_model.equal_programs import ways_of
from stepwell.dialects.cmsis.costs import LAYOUT as CMSIS
from stepwell.dialects.tosa.costs import LAYOUT as TOSA
from stepwell.dialects.xnnpack.costs import COSTS
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.work import operations, size
from stepwell.lowering import lower
from stepwell.program import Program

FLOAT = 8
"""Bytes that a core multiplies in the time of one float."""
WORTH = 0.03
"""The part of a cost from which on a difference is told."""
_MOVES = {
    "transpose": COSTS.transpose, "slice": COSTS.slice, "concatenate": COSTS.slice,
    "split": COSTS.slice, "convert": COSTS.convert, "reshape": COSTS.copy,
    "constant_pad": COSTS.slice,
}  # fmt: skip


@dataclass(frozen=True)
class Optimum:
    """What equal programs become.

    Attributes:
        target: what they are lowered to.
        pipeline: the cost of what the pipeline makes of the program as it is.
        best: the least cost of what it makes of an equal one.
        steps: the rules that lead there.
        program: that program, as it was before it was lowered.
        tried, refused: programs that were lowered, and that could not be.
        applications: rules that held at a place.
    """

    target: str
    pipeline: float
    best: float
    steps: tuple[str, ...]
    program: Program
    tried: int
    refused: int
    applications: int

    @property
    def gain(self) -> float:
        """The part of the pipeline's cost that the best one saves."""
        return 1 - self.best / self.pipeline if self.pipeline else 0.0

    def __str__(self) -> str:
        seen = f"{self.tried} equal programs, {self.applications} applications of proved rules"
        if self.gain < WORTH:
            return f"{self.target}: nothing better by {WORTH:.0%} among {seen} ({self.gain:.2%})"
        return (
            f"{self.target}: {self.gain:.1%} better by {', '.join(self.steps)} ({seen})\n"
            f"{self.program}"
        )


def cost(program: Program, target: str) -> float:
    """What a lowered program takes, by its target's own model.

    XNNPACK: nanoseconds of `dialects/xnnpack/costs`, an op outside of delegates as a copy beside
    its work. TOSA: operators, then elements. CMSIS-NN: multiplications and elements, calls as
    `dialects/cmsis/costs.py` weighs them.
    """
    if target == "xnnpack":
        return sum(_nanoseconds(op) for op in _leaves(program))
    if target.startswith("tosa"):
        return sum(TOSA.op + operations(op) for op in _leaves(program))
    return sum(CMSIS.op + _work(op) for op in _leaves(program))


def _leaves(program: Program) -> Iterator[Operation]:
    for op in program.module.walk():
        if not op.regions and op.operands and op.results and not isinstance(op, WeightOp):
            yield op


def _work(op: Operation) -> float:
    """Multiplications, of floats as `FLOAT` of bytes; depthwise filters have channels last."""
    if op.name.startswith("aten."):
        return FLOAT * operations(op)
    result = op.results[0].type
    if "depthwise" in op.name and isinstance(result, TensorType) and result.get_shape():
        return operations(op) / max(result.get_shape()[-1], 1)
    return operations(op)


def _nanoseconds(op: Operation) -> float:
    dialect, _, name = op.name.partition(".")
    written = sum(size(result.type) for result in op.results)
    if dialect != "xnnpack":
        return COSTS.layout_node + written * (COSTS.copy + COSTS.element)
    if "depthwise" in name:
        taps = operations(op) // max(written, 1)
        return COSTS.node + written * COSTS.window(max(taps, 1))
    if any(word in name for word in ("fully_connected", "convolution", "matrix_multiply")):
        return COSTS.node + operations(op) * COSTS.product
    for word, per_element in _MOVES.items():
        if word in name:
            return COSTS.layout_node + written * per_element
    return COSTS.node + written * (COSTS.addition if len(op.operands) > 1 else COSTS.element)


def optimum(program: Program, target: str, most: int = 64, **options: Any) -> Optimum:
    """The best that the pipeline makes of programs equal to one.

    Args:
        program: of torch's operators.
        target: as `lower` takes it.
        most: programs that are lowered.
        options: of `lower`.

    Raises:
        StepwellError: the program itself cannot be lowered.
    """
    pipeline = cost(lower(program, target, **options).program, target)
    best, steps, better = pipeline, (), program
    seen, refused, applications = {str(program)}, 0, 0
    queue: deque[tuple[Program, tuple[str, ...]]] = deque([(program, ())])
    while queue and len(seen) < most:
        start, so_far = queue.popleft()
        for at, way in ways_of(start):
            variant = way.applied(start, at) if len(seen) < most else None
            if variant is None:
                continue
            applications += 1
            text = str(variant)
            if text in seen:
                continue
            seen.add(text)
            taken = (*so_far, str(way))
            queue.append((variant, taken))
            try:
                weight = cost(lower(variant, target, **options).program, target)
            except StepwellError:
                refused, weight = refused + 1, math.inf
            if weight < best:
                best, steps, better = weight, taken, variant
    return Optimum(target, pipeline, best, steps, better, len(seen), refused, applications)
