"""Implicit semantic deviations of a rewrite: engine nodes whose special values differ from
PyTorch's.

A node created for an op that the stock flow also lowers to it has the deviations of that flow,
which `docs/semantics.md` accepts. Any other node has the losses that were measured for it on some
CPU family, unless its operands are proved to be free of such numbers. A PyTorch op is judged as the
node that it becomes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache
from math import inf, isnan

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from stepwell.dialects.quant.types import quantization
from stepwell.dialects.xnnpack import NODES, XnnpackOp
from stepwell.ir.declared.engine_behavior import ZEROS, Change, engine_behavior, engines
from stepwell.ir.declared.families import is_of
from stepwell.ir.declared.numerics import Deviation, Proof
from stepwell.ir.dtypes import is_float
from stepwell.ir.program import Program
from stepwell.ir.rewriting.inherited_deviations import JUDGES
from stepwell.ir.traversal import walk
from stepwell.ir.types import element, element_name
from stepwell.translate.range_analysis import interval
from stepwell.translate.range_analysis.analysis import ENGINES
from stepwell.translate.range_analysis.interval import Interval, hull
from stepwell.translate.rewrites.xnnpack.nodes import lower_elementwise

_BY_FUNCTIONS = {
    "aten.max_pool2d": "xnnpack.max_pooling_2d",
    "aten.avg_pool2d": "xnnpack.average_pooling_2d",
    "aten.clamp": "xnnpack.clamp",
    "aten.clip": "xnnpack.clamp",
    "aten.relu": "xnnpack.clamp",
    "aten.hardtanh": "xnnpack.clamp",
    "aten.max.other": "xnnpack.maximum",
    "aten.min.other": "xnnpack.minimum",
    "aten.upsample_bilinear2d": "xnnpack.static_resize_bilinear_2d",
    "quant.qcast": "xnnpack.convert",
}
"""Prefixes of op names → their nodes, for ops that functions lower, or rules with other fields."""

_PARTS = {
    "aten.silu": "xnnpack.sigmoid",
    "aten.glu": "xnnpack.sigmoid",
    "aten.std": "xnnpack.square_root",
}
"""Prefixes of op names → the node that the stock flow makes of a part of them."""
_OWN_PARTS = _PARTS | {
    "aten.pow.Tensor_Scalar": "xnnpack.square_root",
    "aten.softplus": "xnnpack.log",
    "aten.log_sigmoid": "xnnpack.log",
}
"""The same, with the ops of which this package's decompositions make such a node. The stock flow
makes none of these, so that a rewrite does not inherit the losses of their parts.
"""
PRODUCTS = frozenset(
    f"xnnpack.{name}"
    for name in "fully_connected batch_matrix_multiply convolution_2d deconvolution_2d "
    "depthwise_convolution_2d".split()
)
"""Nodes whose limits turn a NaN into a number on some CPUs, accepted wherever they come from."""


@cache
def stock_nodes() -> dict[str, str]:
    """Return a mapping from op names to names of the XNNPACK nodes that ExecuTorch's stock flow
    creates for these ops.
    """
    found = {cls.name: cls.name for cls in NODES.values()}
    for rewrite in lower_elementwise.RULES:
        for form in rewrite.rule.forms:
            made = [line.op for line in form.after if line.op.startswith("xnnpack.")]
            if len(form.before) == len(made) == 1:
                found[form.before[0].op] = made[0]
    return found


@cache
def node_of(name: str) -> str | None:
    """Return the name of the XNNPACK node that an op of this name is, or that it becomes when it is
    lowered alone; None if there is none.
    """
    by_function = (node for start, node in _BY_FUNCTIONS.items() if name.startswith(start))
    return stock_nodes().get(name) or next(by_function, None)


def inherited_nodes(replaced: Iterable[str]) -> set[str]:
    """Return the XNNPACK nodes whose losses are accepted for a rewrite: those to which the stock
    flow lowers the replaced ops (given by name), and products.
    """
    found = {node for name in replaced if (node := node_of(name)) is not None}
    parts = {node for name in replaced for start, node in _PARTS.items() if name.startswith(start)}
    return found | parts | PRODUCTS


def measured_as(op: Operation) -> tuple[str, str] | None:
    """Return the XNNPACK node and the dtype under which the special values of an op were measured:
    those of the op itself or of the node that it becomes. None if nothing was measured.
    """
    name, types = node_of(op.name), [v.type for v in op.operands if isinstance(v.type, TensorType)]
    if name is None or not types or quantization(types[0]) is not None:
        return None
    if isinstance(op, XnnpackOp):
        return op.measured_as()
    dtype, made = element_name(types[0]), element_name(op.results[0].type)
    if name != "xnnpack.convert":
        return name, dtype
    return (f"{name} to {made}", dtype) if {dtype, made} == {"f16", "f32"} else None


def is_exact(op: Operation, program: Program) -> bool:
    """Whether a rewrite in the pipeline prevents an op from deviating from PyTorch on special
    values, although its XNNPACK node does.
    """
    dtypes = [dtype for name, dtype in program.context.exact if name == op.name]
    return bool(dtypes) and element_name(op.operands[0].type) in dtypes


def losses_of_nodes(
    program: Program, replaced: Collection[str], made: Sequence[Operation]
) -> Deviation | None:
    """Return the first loss of new nodes on any CPU family, as text.

    Args:
        program: the program; its values determine the special values that may occur.
        replaced: names of the ops that are replaced.
        made: the new ops, of PyTorch or of XNNPACK.
    """
    known = inherited_nodes(replaced)
    for op in (inner for outer in made for inner in outer.walk()):
        measured = None if node_of(op.name) in known else measured_as(op)
        if measured is None or is_exact(op, program):
            continue
        (name, dtype), values = measured, [v for v in op.operands if isinstance(v.type, TensorType)]
        losses = [(e, c) for e in engines() for c in engine_behavior(name, dtype, e).losses]
        if not losses:
            continue
        program.context.forget()
        held = [interval(value, program) for value in values]
        given = [(float(numbers.low), float(numbers.high), numbers.nan) for numbers in held]
        for engine, change in losses:
            proof = None if change.may_meet(given) else Proof("no operand is in the range")
            if lost := Deviation(f"{name} on {engine} makes {_told(change)}").unless(proof):
                return lost
    return None


JUDGES["xnnpack"] = losses_of_nodes


@cache
def _changes(name: str, dtype: str) -> tuple[Change, ...]:
    """Return the deviations of a node on special values over all families of CPUs, each deviation
    once.
    """
    found = (c for e in engines() for c in engine_behavior(name, dtype, e).changes)
    return tuple(dict.fromkeys(found))


@cache
def _part_of(name: str) -> str | None:
    return next((node for start, node in _OWN_PARTS.items() if name.startswith(start)), None)


def widened_by_engines(
    op: Operation, found: Interval, values: Sequence[Interval], program: Program
) -> Interval:
    """Widen an op's interval by the results of XNNPACK's kernels on any CPU family for special
    values.

    Some kernels of sums make an infinity of NaN. The ends of an interval that may be NaN therefore
    bound only the elements that are not NaN in PyTorch. An op that replaces NaN by numbers may pass
    such an infinity on, so its result is unbounded.
    """
    if not values or is_exact(op, program):
        return found
    measured = measured_as(op)
    if measured is not None and measured[0] in ("xnnpack.maximum", "xnnpack.minimum"):
        found = replace(found, nan=any(held.nan for held in values))  # Their meaning is x86's.
    drops_nan = not found.nan and any(held.nan for held in values) and not is_of(op, "factory")
    if drops_nan and is_float(element(op.results[0].type)):
        return replace(found, low=-inf, high=inf, whole=False)
    part = _part_of(op.name) if measured is None else None
    if measured is None and part is None:
        return found
    given = [(float(held.low), float(held.high), held.nan) for held in values]
    if measured is None:
        changes = _changes(str(part), element_name(op.results[0].type))
        is_lost = any(change.is_loss and change.may_meet(given) for change in changes)
        return replace(found, low=-inf, high=inf, nan=True, whole=False) if is_lost else found
    is_limited = measured[0].split()[-1] in ("clamped", "xnnpack.clamp")
    for change in _changes(*measured):
        # A product's factor that is read as zero leaves a sum without it, which is in `found`.
        is_left_out = change.is_flush and change.result in ZEROS and op.name in PRODUCTS
        if is_left_out or not change.may_meet(given):
            continue
        if change.result == "nan":
            found = replace(found, nan=True)
        elif change.result == "any":
            return replace(found, low=-inf, high=inf, nan=True, whole=False)
        elif change.result in ("left", "right"):
            found = hull((found, replace(values[change.result == "right"], nan=False)))
        elif change.result == "lower limit":
            found = replace(found, low=-inf, whole=False)
        elif is_limited:  # A limit, or what limits make of 0 for a denormal number.
            is_limit = change.result not in ZEROS | {"denormal"}
            found = replace(found, low=-inf, high=inf, whole=False) if is_limit else found
        elif change.result in ("finite", "denormal"):
            found = hull((found, *(replace(held, nan=False) for held in values)))
        else:
            low, high = change.numbers
            found = hull((found, Interval(low, high, False, low == high == 0)))
    return found


ENGINES["xnnpack"] = widened_by_engines


def losing_nodes(program: Program) -> dict[str, tuple[str, ...]]:
    """Return, for each XNNPACK node of a lowered program, the engines on which its results for
    special values are not PyTorch's.
    """
    ops = (op for op in walk(program.module) if isinstance(op, XnnpackOp) and op.operands)
    nodes = sorted({op.measured_as() for op in ops})
    on = {
        f"{name} {dtype}": tuple(e for e in engines() if engine_behavior(name, dtype, e).losses)
        for name, dtype in nodes
    }
    return {node: losing for node, losing in on.items() if losing}


def _told(change: Change) -> str:
    """Describe a deviation on special values as text: `0 of NaN`, `inf of 88.38 to 88.72`, …."""
    ranges = [wanted for wanted in change.operands if wanted is not None]
    named = [
        "NaN" if isnan(a) else f"{a:.4g}" if a == b else f"{a:.4g} to {b:.4g}" for a, b in ranges
    ]
    return f"{change.result} of {' and '.join(named)}"
