"""`stepwell explain --optimum`: search for an equivalent program that lowers to a cheaper result.

Proved rules are applied forwards and backwards at every op, breadth first, up to a given number of
programs. Each program is lowered, and the target's own costs estimate the result. A cheaper result
than that of the original program shows a missing rewrite or a wrong pass order. The rules are not
translated into another tool's patterns: most have conditions on types and numbers that only their
own matchers can check.
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
"""Byte multiplications that a core performs in the time of one float multiplication."""
WORTH = 0.03
"""Least difference that is reported, as a part of a cost."""
_MOVES = {
    "transpose": COSTS.transpose, "slice": COSTS.slice, "concatenate": COSTS.slice,
    "split": COSTS.slice, "convert": COSTS.convert, "reshape": COSTS.copy,
    "constant_pad": COSTS.slice,
}  # fmt: skip


@dataclass(frozen=True)
class Optimum:
    """The result of the search over equivalent programs.

    Attributes:
        target: the target of the lowering.
        pipeline: the cost of the lowered original program.
        best: the least cost of a lowered equivalent program.
        steps: the rules that lead to this program.
        program: this program, before it was lowered.
        tried, refused: number of programs that were lowered, and that could not be lowered.
        applications: number of rule applications.
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
        """The part of the pipeline's cost that the best program saves."""
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
    """Estimate the cost of a lowered program by its target's own model.

    XNNPACK: nanoseconds of `dialects/xnnpack/costs`; an op outside delegates costs a copy in
    addition to its work. TOSA: operators, then elements. CMSIS-NN: multiplications and elements,
    with the cost of calls from `dialects/cmsis/costs.py`.
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
    """Count multiplications; one of floats counts as `FLOAT`. Depthwise: channels are last."""
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
    """Lower programs that are equivalent to one, and return the cheapest result.

    Args:
        program: a program of torch's operators.
        target: as for `lower`.
        most: greatest number of programs that are lowered.
        options: options of `lower`.

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
