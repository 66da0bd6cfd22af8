"""Decompose gathers and scatters at constant indices into products with a matrix of ones and zeros.

Graph layers over a fixed graph gather a row for each edge, and add rows (or take their maximum) at
each node. XNNPACK has neither operation, and the runtime's kernels cut delegates in two. A product
takes positions · rows · columns multiplications of about 25 ps each; the kernel that adds takes 9
ns an element (measured on Zen 5). The product is faster for up to `MOST_PLACES` positions.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from stepwell.dialects import aten
from stepwell.ir.core import weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import f32, torch_dtype
from stepwell.ir.rewriting.rewrite import Bound, Rewriter
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.range_analysis import is_finite
from stepwell.translate.rewrites.slices.picking import Planner
from stepwell.translate.rewrites.xnnpack.expressions.pick_by_slices import Places, places_of
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_floats

MOST_PLACES = 256
MOST_PRODUCTS = 2**18
"""Multiplications that take as long as a kernel that copies rows and the exit from the delegate."""
FEW_SLICES = 8
"""Up to this number of slices, a product is not cheaper."""

_MIXES = Deviation("an element that is infinite or NaN makes NaN of what others are added up to")


def _mixes(op: Any, program: Any) -> Deviation | None:
    x, source = op.operands[0], op.operands[-1] if op.name in SCATTERS else op.operands[0]
    is_hidden = op.name == "aten.scatter_reduce.two" and op.arg("include_self") is False
    return _MIXES.unless(*(is_finite(one, program) for one in (source, *[x] * is_hidden)))


SCATTERS = {
    "aten.scatter_add.default": "sum",
    "aten.index_add.default": "sum",
    "aten.scatter_reduce.two": None,
}


@lowers(
    SCATTERS,
    to="aten",
    phases=("decompose",),
    bound=roundings("sums in another order"),
    deviation=_mixes,
    sample="""
    %i = stepwell.weight <"i"> "constant" : tensor<4xi64>
    %y = aten.index_add.default(%x, 0, %i, %s) : (tensor<3x2xf32>, tensor<4xi64>, tensor<4x2xf32>) -> tensor<3x2xf32>
    """,
)
def scatter_by_product(
    x: Value, dim: int, index: Value, source: Value, *, form: str | None, op: Any, b: Rewriter
) -> Value:
    """Replace a sum, maximum or minimum of rows at constant indices by a product."""
    reduce = form or op.arg("reduce")
    no_refusal(not_floats((x.ssa, source.ssa, *op.results)))
    if not x.is_static or not source.is_static or not x.rank:
        refuse("a size is symbolic, or the tensor is a scalar")
    if x.dtype != f32 and reduce != "sum":
        refuse("no half-precision number is provably below every element")
    if reduce not in ("sum", "amax", "amin"):
        refuse(f"the reduction {reduce} over the values of an index is not a matrix product")
    at = x.axis(dim)
    places = _places(index, at, x, source)
    if x.shape[at] > MOST_PLACES:
        refuse(
            f"the axis has {x.shape[at]} indices: the kernel costs less than products with all of them"
        )
    if op.name == "aten.index_add.default" and op.arg("alpha") not in (None, 1):
        source = source * float(op.arg("alpha"))
    keeps = form is not None or op.arg("include_self") is not False
    count, name = x.shape[at], f"{index.key}#places"
    hit = torch.zeros(count, dtype=torch.bool).index_fill(0, places, True)
    if reduce == "sum":
        ones = torch.zeros(count, len(places))
        ones[places, torch.arange(len(places))] = 1.0
        found = _product(source, at, ones, name)
    else:
        found = _greatest(source if reduce == "amax" else source * -1.0, at, places, hit, name)
        found = found if reduce == "amax" else found * -1.0
    along = [count if axis == at else 1 for axis in range(x.rank)]
    if keeps and reduce != "sum":
        never = torch.where(hit, 0.0, -torch.inf if reduce == "amax" else torch.inf)
        found = found + x.constant(never.reshape(along), name)
        limits = (found, None) if reduce == "amax" else (None, found)
        return x.call(aten.ClampTensor, *limits)
    if not keeps:
        x = x.call(aten.MulTensor, x.constant((~hit).float().reshape(along), name))
    return x + found


_LARGEST = torch.finfo(torch.float32).max


def _places(index: Value, at: int, x: Value, source: Value) -> torch.Tensor:
    """Return the row to which each source row is written; refuse indices that differ within a
    row.
    """
    if index.key is None:
        refuse("the indices are known only at run time")
    held = index.b.weights.get(index.key)
    if not held.numel():
        refuse("the index tensor is empty")
    if held.dim() > 1 or x.rank == 1:
        if tuple(held.shape) != source.shape:
            refuse(
                f"the indices use only a part of the source: {tuple(held.shape)} of {source.shape}"
            )
        rows = held.movedim(at, 0).flatten(1) if held.dim() > 1 else held[:, None]
        if not bool((rows == rows[:, :1]).all()):
            refuse("the indices differ within a row")
        held = rows[:, 0]
    if any(n != m for a, (n, m) in enumerate(zip(x.shape, source.shape, strict=True)) if a != at):
        refuse("the source and the operand differ in another axis than the indexed one")
    if not 0 <= int(held.min()) <= int(held.max()) < x.shape[at]:
        refuse("an index is out of bounds")
    return held.long()


def _product(source: Value, at: int, matrix: torch.Tensor, name: str) -> Value:
    """Return a constant matrix times the rows along an axis."""
    order = [*(axis for axis in range(source.rank) if axis != at), at]
    rows = source.permute(order)
    weight = rows.constant(matrix.to(torch_dtype(rows.dtype)), name)
    made = rows.call(aten.LinearDefault, weight, None, shape=(*rows.shape[:-1], len(matrix)))
    return made.permute([order.index(axis) for axis in range(source.rank)])


def _greatest(source: Value, at: int, places: torch.Tensor, hit: torch.Tensor, name: str) -> Value:
    """Return the maximum of the rows written to each position, or 0 without one: a product sorts
    the rows into as many slots for each position as the longest list needs.
    """
    count = len(hit)
    ranks = torch.zeros_like(places)
    seen = [0] * count
    for row, place in enumerate(places.tolist()):
        ranks[row] = seen[place]
        seen[place] += 1
    deep = max(seen)
    slots = torch.zeros(count * deep, len(places))
    slots[places * deep + ranks, torch.arange(len(places))] = 1.0
    empty = (slots.sum(1) == 0) & hit.repeat_interleave(deep)
    rows = _product(source, at, slots, name)
    along = [count * deep if axis == at else 1 for axis in range(source.rank)]
    rows = rows + rows.constant(torch.where(empty, -_LARGEST, 0.0).reshape(along), name)
    shape = [*source.shape[:at], count, deep, *source.shape[at + 1 :]]
    made = [*source.shape[:at], count, *source.shape[at + 1 :]]
    return rows.view(*shape).call(aten.AmaxDefault, [at + 1], False, shape=made)


@lowers(
    "aten.index_select.default",
    "aten.index.Tensor",
    to="aten",
    phases=("decompose",),
    bound=Bound(0.0, 5e-324, "−0 becomes +0 beside a zero"),
    deviation=_mixes,
    sample="""
    %i = stepwell.weight <"i#squares"> "constant" : tensor<40xi64>
    %y = aten.index_select.default(%x, 0, %i) : (tensor<13x2xf32>, tensor<40xi64>) -> tensor<40x2xf32>
    """,
)
def pick_by_product(x: Value, *, op: Any, out: Out, b: Rewriter) -> Value | None:
    """Gather rows by a constant index, if its order would need many slices."""
    if not_floats(op.results) or not x.is_static:
        return None
    places = places_of(op, x.shape, b.program)
    if not isinstance(places, Places) or len(places.picked) != 1:
        return None
    (at, rows), *_ = places.picked
    size = places.seen[at]
    assert isinstance(size, int), "picked from axes of known sizes"
    if Planner().plan(rows, size).cost <= FEW_SLICES:
        return None
    seen = x.view(*places.seen)
    if prod(seen.shape) * len(rows) > MOST_PRODUCTS:
        refuse("the kernel that copies rows costs less than products with all rows")
    matrix = torch.zeros(len(rows), size)
    matrix[torch.arange(len(rows)), torch.tensor(rows)] = 1.0
    name = f"{weight_key(op.operands[-1])}#places"
    return _product(seen, at, matrix, name).view(*out.shape)


RULES = lowerings_of(__name__)
