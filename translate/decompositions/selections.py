"""Decompositions of selections by a condition."""

from __future__ import annotations

from math import isfinite
from typing import Any, cast

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import f32, i1, is_float, torch_dtype
from stepwell.ir.rewriting.rewrite import EXACT, Bound, Rewriter
from stepwell.ir.types import Dim, dims, element
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.range_analysis.assumptions import trusts_finite
from stepwell.translate.rewrites.building import cannot_be_viewed_as
from stepwell.translate.rewrites.xnnpack.nodes.guards import (
    is_made_before,
    is_made_of_integers,
    not_floats,
)

SIDES: dict[type[SchemaOp], tuple[int, float]] = {
    aten.GeScalar: (0, 1.0),
    aten.GtScalar: (0, 0.0),
    aten.LtScalar: (1, 1.0),
    aten.LeScalar: (1, 0.0),
}
"""Comparison with a number → the operand chosen where it is greater; a correction for equality."""


STEEP = 2.0**126
"""This number times the smallest normal number is 1."""


def _asked(op: SchemaOp) -> SSAValue:
    """Return the condition of a selection (`aten.where`) as a boolean value."""
    return cast(SSAValue, op.arg("condition" if "condition" in op.SCHEMA.by_name else "mask"))


@lowers(
    {"aten.where.self": True, "aten.masked_fill.Scalar": False},
    to="aten",
    phases=("decompose",),
    unless=lambda op: not isinstance(_asked(op).owner, tuple(SIDES)),
    bound=Bound(0.0, 1.2e-38, "a difference below the smallest normal number counts as none"),
    deviation=lambda op, program: Deviation("a NaN chooses neither side, a zero may lose its sign"),
    sample="""
    %c = aten.ge.Scalar(%x, 0.5) : (tensor<2x3xf32>) -> tensor<2x3xi1>
    %a = aten.tanh.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %b = aten.sin.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %y = aten.where.self(%c, %a, %b) : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    """,
)
def choose_by_step(*, form: bool, op: Any, b: Rewriter) -> Value:
    """Decompose a selection by a comparison into a sum of both operands times 0 or 1.

    XNNPACK has no comparison, and a selection outside cuts a delegate in two. The operand that is
    not selected is multiplied by zero, so it must provably be finite. For `where(x > 0, log(x),
    0)`, the logarithm is not.
    """
    asked = cast(SchemaOp, _asked(op).owner)
    x, number = Value(asked.operands[0], b), asked.arg("other")
    other = Value(op.arg("other" if form else "self"), b)
    no_refusal(not_floats((x.ssa, other.ssa, *op.results)))
    if form:
        chosen = Value(op.arg("self"), b)
    elif isinstance(filled := op.arg("value"), int | float):
        chosen = x.constant(torch.full((1,) * len(x.shape), filled, dtype=torch.float32), "filled")
    else:
        refuse("the fill value is known only at run time")
    no_refusal(not_floats((chosen.ssa,)))
    if x.dtype != f32:
        refuse("the factor that makes a step from a difference overflows half precision")
    if not isinstance(number, int | float):
        refuse("the number is known only at run time")
    why = "what is not chosen may be infinite or NaN, and would be multiplied by zero"
    no_refusal(trusts_finite((chosen.ssa, other.ssa), b.program, why))
    first, equal = SIDES[type(asked)]
    apart = (x - number if number else x).call(aten.ClampDefault, -1.0, 1.0) * STEEP
    step = (apart + equal if equal else apart).call(aten.ClampDefault, 0.0, 1.0)
    above, below = (chosen, other) if first == 0 else (other, chosen)
    return above * step + below * (step * -1.0 + 1.0)


def _compares_floats(op: SchemaOp) -> bool:
    """Whether the condition of a selection compares floats with a number."""
    asked = _asked(op).owner
    return isinstance(asked, tuple(SIDES)) and is_float(element(asked.operands[0].type))


@lowers(
    {"aten.where.self": True, "aten.masked_fill.Scalar": False},
    to="aten",
    phases=("xnnpack/decompose",),
    unless=lambda op: _compares_floats(op) or isinstance(_asked(op).owner, WeightOp),
    bound=Bound(0.0, 5e-324, "a zero may change its sign"),
    deviation=lambda op, program: Deviation(
        "an infinity or NaN that is not selected makes the result NaN, a zero may change its sign"
    ),
    sample="""
    %a = aten.tanh.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %y = aten.masked_fill.Scalar(%a, %m, 0.5) : (tensor<2x3xf32>, tensor<2x1xi1>) -> tensor<2x3xf32>
    """,
)
def choose_by_mask(*, form: bool, op: Any, b: Rewriter) -> Value:
    """Decompose a selection by a mask of integers, such as padding, into a sum of both operands
    times 0 or 1. The mask is computed before the delegate, which the selection would cut in two.
    """
    mask, other = Value(_asked(op), b), Value(op.arg("other" if form else "self"), b)
    no_refusal(not_floats((other.ssa, *op.results)))
    if not is_made_before(mask.ssa):
        refuse("the mask is computed from the results of a delegate")
    values, chosen = [other.ssa], None
    if form:
        values.append(op.arg("self"))
        chosen = Value(values[1], b)
    elif isinstance(filled := op.arg("value"), int | float) and isfinite(filled):
        held = torch.full((1,) * len(other.shape), filled, dtype=torch_dtype(other.dtype))
        chosen = other.constant(held, "filled") if filled else None
    else:
        refuse("the fill value is infinite, or known only at run time")
    no_refusal(not_floats(values))
    if all(map(is_made_of_integers, values)):
        refuse("both operands are computed from integers, and a kernel selects them")
    why = "what is not chosen may be infinite or NaN, and would be multiplied by zero"
    no_refusal(trusts_finite(values, b.program, why))
    step = mask.cast(other.dtype)
    kept = other * (step * -1.0 + 1.0)
    return kept if chosen is None else chosen * step + kept


@lowers(
    "aten.index.Tensor",
    to="aten",
    bound=EXACT,
    sample="""
    %n = aten.sym_size.int(%x, 1) : (tensor<1x?xf32, #stepwell.shape<[1, "s0"]>>) -> !stepwell.int<"s0">
    %a = aten.arange.default(%n) : (!stepwell.int<"s0">) -> tensor<?xi64, #stepwell.shape<["s0"]>>
    %j = aten.view.default(%a, [1, -1]) : (tensor<?xi64, #stepwell.shape<["s0"]>>) -> tensor<1x?xi64, #stepwell.shape<[1, "s0"]>>
    %i = stepwell.weight <"#zeros"> "constant" : tensor<1x1xi64>
    %y = aten.index.Tensor(%x, [%i, %j]) : (tensor<1x?xf32, #stepwell.shape<[1, "s0"]>>, tensor<1x1xi64>, tensor<1x?xi64, #stepwell.shape<[1, "s0"]>>) -> tensor<1x?xf32, #stepwell.shape<[1, "s0"]>>
    """,
)
def index_by_ranges_to_view(x: Value, indices: Any, *, out: Out, b: Rewriter) -> Value | None:
    """Rewrite a selection by all indices of each axis, in order, as a view.

    Masks of language models are read so: element `[0, j]` for every key j, at `[0, 0, 0, j]`.
    """
    if len(indices) != x.rank or any(index is None for index in indices):
        return None
    axes: list[int] = []
    for index, size in zip(indices, x.shape, strict=True):
        at = _axis_of_range(index, size, len(out.shape), b)
        if at is None:
            return None
        axes += [at] if size != 1 else []
    if axes != sorted(set(axes)) or [out.shape[at] for at in axes] != [
        d for d in x.shape if d != 1
    ]:
        return None
    if any(size != 1 for at, size in enumerate(out.shape) if at not in axes):
        return None
    no_refusal(cannot_be_viewed_as(x.ssa, out.shape))
    return x.view(*out.shape)


def _axis_of_range(index: Value, size: Dim, rank: int, b: Rewriter) -> int | None:
    """Return the axis of the result along which an index counts from 0 to a size; None if it does
    not. An index of an axis of size 1 counts along no axis, so that the number is of no use.
    """
    ahead = rank - len(index.shape)
    longer = [ahead + at for at, d in enumerate(index.shape) if d != 1]
    if len(longer) != (size != 1):
        return None
    at = longer[0] if longer else 0
    if index.key is not None:
        numbers = b.program.weights.get(index.key)
        if not isinstance(size, int) or numbers.dtype.itemsize == 1:
            return None
        return at if numbers.flatten().tolist() == list(range(size)) else None
    source = index.ssa.owner
    while isinstance(source, aten.ViewDefault):
        source = source.operands[0].owner
    is_counting = isinstance(source, aten.ArangeDefault) and dims(source.results[0].type) == (size,)
    return at if is_counting else None


@lowers(
    "aten.bitwise_and.Tensor",
    "aten.logical_and.default",
    to="aten",
    bound=EXACT,
    if_dtype=(i1,),
    unless=lambda op: all(weight_key(value) is None for value in op.operands),
    sample="""
    %t = stepwell.weight <"#ones"> "constant" : tensor<1x1xi1>
    %y = aten.bitwise_and.Tensor(%t, %x) : (tensor<1x1xi1>, tensor<3x4xi1>) -> tensor<3x4xi1>
    """,
)
def drop_true_from_and(x: Value, other: Value, *, out: Out, b: Rewriter) -> Value | None:
    """Rewrite a conjunction with a constant that is true everywhere as the other operand."""
    for constant, kept in ((x, other), (other, x)):
        if constant.key is None or kept.key is not None or kept.dtype != i1:
            continue
        if constant.is_static and bool(b.program.weights.get(constant.key).all()):
            if kept.shape == out.shape:
                return kept
            return kept.expand(*out.shape) if all(isinstance(d, int) for d in out.shape) else None
    return None


RULES = lowerings_of(__name__)
