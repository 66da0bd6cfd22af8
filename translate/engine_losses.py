"""Implicit semantic deviations of a rewrite: engine nodes whose special values differ from
PyTorch's.

A node created for an op that the stock flow also lowers to it has the deviations of that flow,
which `docs/semantics.md` accepts. Any other node has the losses that were measured for it on some
CPU family, unless its operands are proved to be free of such numbers. A PyTorch op is judged as the
node that it becomes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from math import isnan

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from stepwell.dialects.quant.types import quantization
from stepwell.dialects.xnnpack import NODES, XnnpackOp
from stepwell.ir.declared.engine_behavior import Change, engine_behavior, engines
from stepwell.ir.declared.numerics import Deviation, Proof
from stepwell.ir.program import Program
from stepwell.ir.rewriting.inherited_deviations import JUDGES
from stepwell.ir.types import element
from stepwell.translate.range_analysis import interval
from stepwell.translate.rewrites.xnnpack.nodes import lower_elementwise, lower_softmax

_BY_FUNCTIONS = {
    "aten.max_pool2d": "xnnpack.max_pooling_2d",
    "aten.avg_pool2d": "xnnpack.average_pooling_2d",
    "aten.clamp": "xnnpack.clamp",
    "aten.relu": "xnnpack.clamp",
    "aten.hardtanh": "xnnpack.clamp",
}
"""Prefixes of op names → their nodes, for ops that functions lower, or rules with other fields."""


@cache
def stock_nodes() -> dict[str, str]:
    """Return the node that the stock flow creates for an op, by their names."""
    found = {cls.name: cls.name for cls in NODES.values()}
    for rewrite in (*lower_elementwise.RULES, *lower_softmax.RULES):
        for form in rewrite.rule.forms:
            made = [line.op for line in form.after if line.op.startswith("xnnpack.")]
            if len(form.before) == len(made) == 1:
                found[form.before[0].op] = made[0]
    return found


def node_of(name: str) -> str | None:
    """Return the node that an op is, or becomes by itself, by their names."""
    by_function = (node for start, node in _BY_FUNCTIONS.items() if name.startswith(start))
    return stock_nodes().get(name) or next(by_function, None)


def losses_of_nodes(
    program: Program, replaced: Collection[str], made: Sequence[Operation]
) -> Deviation | None:
    """Return the first loss of new nodes on any CPU family, as text.

    Args:
        program: the program; its values determine the special values that may occur.
        replaced: names of the ops that are replaced.
        made: the new ops, of PyTorch or of XNNPACK.
    """
    known = {node_of(name) for name in replaced}
    for op in (inner for outer in made for inner in outer.walk()):
        name, values = node_of(op.name), [v for v in op.operands if isinstance(v.type, TensorType)]
        if name is None or name in known or not values or quantization(values[0].type) is not None:
            continue
        dtype = str(element(values[0].type))
        if isinstance(op, XnnpackOp):
            name, dtype = op.measured_as()
        losses = [(e, c) for e in engines() for c in engine_behavior(name, dtype, e).losses]
        held = [interval(value, program) for value in values] if losses else []
        given = [(float(numbers.low), float(numbers.high), numbers.nan) for numbers in held]
        for engine, change in losses:
            proof = None if change.may_meet(given) else Proof("no operand is in the range")
            if lost := Deviation(f"{name} on {engine} makes {_told(change)}").unless(proof):
                return lost
    return None


JUDGES["xnnpack"] = losses_of_nodes


def losing_nodes(program: Program) -> dict[str, tuple[str, ...]]:
    """By node of a lowered program: engines on which its special values are not PyTorch's."""
    ops = (op for op in program.module.walk() if isinstance(op, XnnpackOp) and op.operands)
    nodes = sorted({op.measured_as() for op in ops})
    on = {
        f"{name} {dtype}": tuple(e for e in engines() if engine_behavior(name, dtype, e).losses)
        for name, dtype in nodes
    }
    return {node: losing for node, losing in on.items() if losing}


def _told(change: Change) -> str:
    """Return `0 of NaN`, `inf of 88.38 to 88.72`, …."""
    ranges = [wanted for wanted in change.operands if wanted is not None]
    named = [
        "NaN" if isnan(a) else f"{a:.4g}" if a == b else f"{a:.4g} to {b:.4g}" for a, b in ranges
    ]
    return f"{change.result} of {' and '.join(named)}"
