"""The estimated time of a node, by its kind, sizes and the costs of a kind of CPU."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Operation

from stepwell.dialects.xnnpack.costs import Costs
from stepwell.ir.core import WeightOp
from stepwell.ir.program import Program
from stepwell.ir.work import operations, size


def leaves(program: Program) -> Iterator[Operation]:
    """Yield the ops that compute: those with operands and results, and without regions."""
    for op in program.module.walk():
        if not op.regions and op.operands and op.results and not isinstance(op, WeightOp):
            yield op


def time_of(program: Program, costs: Costs) -> float:
    """Estimate the nanoseconds of a program."""
    return sum(nanoseconds(op, costs) for op in leaves(program))


_MOVES = {
    "transpose": "transpose", "slice": "slice", "concatenate": "slice", "split": "slice",
    "convert": "convert", "reshape": "copy", "constant_pad": "slice",
}  # fmt: skip
"""Part of a node's name → the cost of each element that it writes."""


def nanoseconds(op: Operation, costs: Costs) -> float:
    """Estimate the time of a node; an op outside delegates costs a copy in addition to its work."""
    dialect, _, name = op.name.partition(".")
    written = sum(size(result.type) for result in op.results)
    if dialect != "xnnpack":
        return costs.layout_node + written * (costs.copy + costs.element)
    if "depthwise" in name:
        taps = operations(op) // max(written, 1)
        return costs.node + written * costs.window(max(taps, 1))
    if any(word in name for word in ("fully_connected", "convolution", "matrix_multiply")):
        product = costs.product * (costs.indirect if name == "convolution_2d" else 1)
        return costs.node + operations(op) * product
    for word, cost in _MOVES.items():
        if word in name:
            return costs.layout_node + written * getattr(costs, cost)
    return costs.node + written * (costs.addition if len(op.operands) > 1 else costs.element)
