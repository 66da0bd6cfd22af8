"""How XNNPACK's kernels of one CPU family treat special values, in addition to a node's semantics.

Ordinary numbers are computed as in PyTorch; `special_values.json` lists the results for special
ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from xdsl.ir import Operation

from stepwell.dialects.xnnpack.base import NODES, XnnpackOp
from stepwell.dialects.xnnpack.elementwise import (
    Binary,
    Maximum,
    Minimum,
    PReLU,
    Unary,
)
from stepwell.dialects.xnnpack.meaning.elementwise import torch_function
from stepwell.dialects.xnnpack.spatial import MaxPooling2d
from stepwell.ir.declared.engine_behavior import Change, Range
from stepwell.ir.declared.interpretation import FOLLOWERS, Interpreter, rule_for

Tensor = torch.Tensor


def _sloped(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(a > 0, a, a * b)


OF_DOUBLES: dict[type[Operation], Callable[..., Tensor]] = {
    **{
        n: torch_function(n)
        for n in NODES.values()
        if issubclass(n, Unary) and n.STARTS_FROM_DOUBLES
    },
    Maximum: torch.maximum,
    Minimum: torch.minimum,
    PReLU: _sloped,
}
"""Functions of float64 that the measured changes start from: the interpreter's maxima make the
choice of one family of CPUs. `STARTS_FROM_DOUBLES` says which functions of torch are among them.
"""


def _as_engine(
    op: XnnpackOp, args: Sequence[Any], results: Sequence[Any], ctx: Interpreter
) -> Sequence[Any]:
    """Compute the results of a node as the selected engine does."""
    assert ctx.engine is not None
    return with_changes(type(op), op.behavior(ctx.engine).changes, op, args, results, ctx)


def with_changes(
    node: type[Operation],
    changes: Sequence[Change],
    op: Operation,
    args: Sequence[Any],
    results: Sequence[Any],
    ctx: Interpreter,
) -> Sequence[Any]:
    """Replace an op's results for special operands by those of the engine.

    Args:
        node: the class of the node: that of the op, or of the node to which the op is lowered.
        changes: the measured differences between the engine's results and PyTorch's.
    """
    first = results[0]
    if not isinstance(first, Tensor) or not args[0].is_floating_point():
        return results
    if (function := OF_DOUBLES.get(node)) is not None:
        first = function(*(value.double() for value in args)).to(first.dtype)
    is_elementwise = issubclass(node, Binary) or (issubclass(node, Unary) and not node.MIXED)
    limits = op.output_range if isinstance(op, XnnpackOp) else None
    changed = first.clone()
    for change in changes:
        pairs = [(a, r) for a, r in zip(args, change.operands, strict=False) if r is not None]
        masks = [_is_in(value, wanted) for value, wanted in pairs]
        if not all(bool(mask.any()) for mask in masks):
            continue
        if not is_elementwise and (change.is_flush or change.expected in ("finite", "0", "-0")):
            continue  # Which elements it reaches depends on the kernel's window, and its order.
        if is_elementwise:
            where = reduce(torch.logical_and, masks)
            if change.expected == "denormal":  # Ordinary numbers may give other results.
                small = [_of_class(value, "denormal") for value in (first, *args)]
                where = where & reduce(torch.logical_or, small)
        else:
            where = _of_class(first, change.expected)
        if change.result in ("left", "right"):
            given: Any = args[change.result == "right"].to(first.dtype)
        elif change.result in ("finite", "denormal"):
            given = _without(op, args, change.operands, ctx, issubclass(node, MaxPooling2d))
        elif change.result == "lower limit":
            given = torch.tensor(-math.inf if limits is None else limits[0]).to(first.dtype)
        else:
            number = math.nan if change.result == "any" else change.numbers[0]
            given = torch.tensor(number).to(first.dtype)
        changed = torch.where(where, given, changed)
    if limits is not None:
        changed = changed.clamp(*limits)  # The changes were measured with other limits.
    return (changed, *results[1:])


def _is_in(value: Tensor, wanted: Range) -> Tensor:
    low, high = wanted
    if math.isnan(low):
        return value.isnan()
    inside = (value >= low) & (value <= high)
    if low == 0 == high:
        return inside & (value.signbit() == (math.copysign(1.0, low) < 0))
    return inside


def _of_class(value: Tensor, name: str) -> Tensor:
    """Return a mask of the elements of a tensor that belong to a class (NaN, infinity, …)."""
    if name in ("finite", "denormal"):
        tiny = torch.finfo(value.dtype).smallest_normal
        is_small = (value.abs() < tiny) & (value != 0)
        return is_small if name == "denormal" else value.isfinite() & ~is_small & (value != 0)
    return _is_in(value, (float(name), float(name)))


def _without(
    op: Operation,
    args: Sequence[Any],
    operands: Sequence[Range | None],
    ctx: Interpreter,
    is_greatest: bool,
) -> Any:
    """Compute an op's result with its special operands replaced by 0, or −∞ in a maximum."""
    rule, fill = rule_for(type(op)), -math.inf if is_greatest else 0.0
    assert rule is not None
    pairs = zip(args, (*operands, *[None] * len(args)), strict=False)
    given = [a if r is None else torch.where(_is_in(a, r), fill, a).to(a.dtype) for a, r in pairs]
    return rule(op, given, ctx)[0]


FOLLOWERS[XnnpackOp] = _as_engine
