"""Evaluates an op's semantics on intervals, and the constraints of conditions on values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.maps import axis_map
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.xdsl.xdsl_private import operands_of
from stepwell.ir.core import weight_key
from stepwell.ir.declared.families import is_of
from stepwell.ir.declared.scalar_semantics import Scalar, Term, count_of, keeps_axes, meaning
from stepwell.ir.dtypes import has_torch_dtype
from stepwell.ir.identity_cache import once_each
from stepwell.ir.signature import least_of
from stepwell.ir.types import dims, element
from stepwell.ir.work import size
from stepwell.translate.range_analysis.interval import (
    ANY,
    LEAST_EPSILON,
    SLACK,
    Interval,
    Kind,
    kind_of,
    of_number,
)

ABSORBED = 1e30
"""Numbers below it leave the largest singles as they are, and infinities."""
LARGEST_OF_MEANS = 1 << 12
"""The most elements of a product's weight that are read if its other factor is unbounded: a mean of
squares is known to be positive.
"""
DEEPEST = 4
"""The most ops before a value that are searched for operands of a condition."""


@dataclass(frozen=True, slots=True)
class RowSums:
    """The sums over the elements of each row of a weight `[out, …]`, in f32 at least.

    Attributes:
        positive, negative: the sums of positive elements, and of the magnitudes of negative ones,
            `[out]`.
        slack: a factor for rounding, of these sums and of a sum of products in any order.
    """

    positive: torch.Tensor
    negative: torch.Tensor
    slack: float

    def most(self, high: float, low: float) -> float:
        """Return the largest sum of products with numbers from `low` ≤ 0 to `high` ≥ 0."""
        return self.slack * float((self.positive * high - self.negative * low).max())

    def least(self, high: float, low: float) -> float:
        """Return the smallest sum of products with numbers from `low` ≤ 0 to `high` ≥ 0."""
        return -self.slack * float((self.negative * high - self.positive * low).max())


class Known(Protocol):
    """The interface of the analysis of a program, `analysis.Values`, that an evaluation queries."""

    def of(self, value: SSAValue) -> Interval: ...
    def row_sums(self, weight: SSAValue) -> RowSums | None: ...


Bound = tuple[Scalar, Scalar, bool]
"""`(a, b, may_be_nan)`: a is at most b, or one of them is NaN."""


@dataclass
class Evaluation:
    """Evaluation of one op's semantics on intervals, the context of transfer functions.

    Attributes:
        bounds: inequalities that hold wherever the element is read.
        depth: how many ops before an operand are searched for their terms.
    """

    values: Known
    op: Operation
    kind: Kind
    bounds: tuple[Bound, ...] = ()
    depth: int = DEEPEST
    known: dict[Term, Interval] = field(default_factory=dict[Term, Interval])

    def __call__(self, given: Scalar) -> Interval:
        """Return the interval of a term or a number."""
        if not isinstance(given, Term):
            return self.kind.number(given)
        if given.value is not None:
            found = self.values.of(given.value)
            return self._bounded(given, found) if self.bounds else found
        found = self.known.get(given)
        if found is None:
            rule = RULES.get(given.function)
            found = ANY if rule is None else rule(self, given)
            is_exact = self.kind.is_float and given.function in _EXACT
            is_ratio = not self.kind.is_float and given.function == "divide"  # Before rounding.
            if given.function not in _TRUTHS and not is_exact and not is_ratio:
                found = self.kind.held(found)
            if self._absorbs(given):
                ends = max(found.low, self.kind.low), min(found.high, self.kind.high)
                found = Interval(*ends, found.nan, found.whole)
            self.known[given] = found
        return found

    def _absorbs(self, term: Term) -> bool:
        """Whether a sum cannot overflow because one summand is too small to change the type's
        largest number.
        """
        if term.function not in ("add", "subtract") or not self.is_float:
            return False
        sides = [self(side) for side in term.operands]
        is_small = any(side.most < ABSORBED for side in sides)
        return is_small and self.largest > ABSORBED and all(side.is_bounded for side in sides)

    @property
    def is_float(self) -> bool:
        """Whether the result is a float."""
        return self.kind.is_float

    @property
    def slack(self) -> float:
        """Return the relative error of one rounding."""
        return self.kind.slack

    @property
    def largest(self) -> float:
        """Return the largest number of the result's type."""
        return float(self.kind.high)

    @property
    def count(self) -> int | None:
        """Return the number of elements that are reduced to one; None if it is symbolic."""
        return count_of(self.op)

    @property
    def may_be_empty(self) -> bool:
        """Whether a reduction may be over no elements."""
        if (count := self.count) is not None:
            return count == 0
        return any(least_of(size, self.op) < 1 for size in dims(self.op.operands[0].type))

    @property
    def nan_is_zero(self) -> bool:
        """Whether casting NaN to an integer gives zero, as TOSA specifies."""
        return self.op.name.startswith("tosa.")

    def look(self, given: Scalar) -> tuple[Scalar, Operation]:
        """Return the term that defines an element of an op's result, with that op; return any other
        term unchanged.
        """
        if isinstance(given, Term) and given.value is not None:
            owner = given.value.owner
            if isinstance(owner, Operation) and given.value is owner.results[0]:
                said = meaning(owner)
                if said is not None and said.element is not None:
                    return said.element, owner
        return given, self.op

    def fold(self, given: Scalar, *functions: str) -> tuple[Term, Operation] | None:
        """Return the reduction that computes a term, with its op; None if it is another function,
        or if the reduced axes are removed from the op's result.
        """
        found, op = self.look(given)
        if not isinstance(found, Term) or found.function not in functions:
            return None
        return (found, op) if op is self.op or keeps_axes(op) else None

    def same(self, one: Scalar, other: Scalar) -> bool:
        """Whether two terms are identical, or elements of one value at the same index."""
        if one is other:
            return True
        if not isinstance(one, Term) or not isinstance(other, Term):
            return False
        if one.value is None or one.value is not other.value:
            return False
        places = [at for at, value in enumerate(self.op.operands) if value is one.value]
        axes = axis_map(self.op) if len(places) > 1 else None
        # A matrix times itself is not a square: its rows are multiplied by its columns.
        return len(places) < 2 or (axes is not None and len({axes.links[at] for at in places}) == 1)

    def elements_of_norm(self, x: Scalar, factor: Scalar) -> int | None:
        """Return the element count of the mean in `x · rsqrt(average(x²) + ε)`; None otherwise."""
        root, _ = self.look(factor)
        if not isinstance(root, Term) or root.function != "rsqrt":
            return None
        shifted, of = self.look(root.operands[0])
        if not isinstance(shifted, Term) or shifted.function != "add":
            return None
        inner = Evaluation(self.values, of, self.kind)
        mean = inner.fold(shifted.operands[0], "average")
        least = max(LEAST_EPSILON, self.kind.tiny)
        if mean is None or inner(shifted.operands[1]).low < least:
            return None
        square, _ = self.look(mean[0].operands[0])
        if not isinstance(square, Term) or square.function != "multiply":
            return None
        squares = self.same(square.operands[0], x) and self.same(square.operands[1], x)
        return count_of(mean[1]) if squares else None

    def is_part_of_sum(self, x: Scalar, sum_: Scalar) -> bool:
        """Whether `sum_` is the sum over `x`, optionally plus a nonnegative number."""
        more, of = self.look(sum_)
        if isinstance(more, Term) and more.function == "add":
            inner = Evaluation(self.values, of, self.kind)
            if inner(more.operands[1]).low >= 0:
                sum_ = more.operands[0]
        found = self.fold(sum_, "total")
        return found is not None and self.same(found[0].operands[0], x)

    def is_of_greatest(self, given: Scalar) -> bool:
        """Whether a term is `exp(x - greatest(x))`, for which one element is 1."""
        if not isinstance(given, Term) or given.function != "exp":
            return False
        less = given.operands[0]
        if not isinstance(less, Term) or less.function != "subtract":
            return False
        x, most_ = less.operands
        if not isinstance(most_, Term) or most_.function != "greatest":
            return False
        return self.same(most_.operands[0], x)

    def least_total(self, given: Scalar) -> float:
        """Return a lower bound of a nonnegative sum; 1 / (2 n) for the top k of n probabilities."""
        if self.is_of_greatest(given):
            return 1.0
        topk = given.value.owner if isinstance(given, Term) and given.value is not None else None
        if not isinstance(topk, SchemaOp) or topk.name != "aten.topk.default":
            return 0.0
        source, sizes = topk.operands[0].owner, dims(topk.operands[0].type)
        if not isinstance(source, SchemaOp) or not is_of(source, "distribution"):
            return 0.0
        if not topk.arg("k"):
            return 0.0
        if self.op.name != "aten.sum.dim_IntList" or topk.arg("largest") is False:
            return 0.0
        at, over = topk.arg("dim") % len(sizes), source.arg("dim") % len(sizes)
        axes: list[int] = self.op.arg("dim") if isinstance(self.op, SchemaOp) else []
        is_summed = [axis % len(sizes) for axis in axes or ()] == [at]
        size = sizes[at]
        return 0.5 / size if is_summed and at == over and isinstance(size, int) and size else 0.0

    def sum_of_products(self, given: Scalar) -> Interval | None:
        """Return the interval of sums of products, and of their partial sums in any order.

        It is known for products with a layer's weight, and for products with probabilities: a row
        of these is nonnegative and sums to at most 1, so that no sum exceeds the greatest number it
        weighs. None for others.
        """
        if not isinstance(given, Term) or given.function != "multiply":
            return None
        x, y = given.operands
        if not isinstance(y, Term) or y.value is None:
            return None
        source = x.value if isinstance(x, Term) else None
        if source is not None and are_probabilities_of_rows(source, self.op):
            weighed = self(y)
            most = 2 * weighed.most * (1 + SLACK)
            nan = self(x).nan or weighed.nan
            return Interval(-most, most, nan) if weighed.is_bounded else None
        held = self(x)
        rows = self.values.row_sums(y.value) if held.is_bounded and has_rows(self.op) else None
        if rows is None:
            return None
        low, high = min(float(held.low), 0.0), max(float(held.high), 0.0)  # Zero is padding.
        return Interval(rows.least(high, low), rows.most(high, low), held.nan)

    def attention(self) -> Interval:
        """Return the interval of an attention: that of its values if no score is infinite or NaN.

        The weights of a query are nonnegative and sum to 1, or are all 0 where the row is fully
        masked, as torch defines it. If the scores are below `ABSORBED` and the mask is nowhere
        above it, their sum is a number or −∞, never NaN or ∞.
        """
        op = self.op
        assert isinstance(op, SchemaOp)
        q, k, v = map(self.values.of, op.operands[:3])
        mask, scale, depth = op.operand("attn_mask"), op.arg("scale"), dims(op.operands[0].type)[-1]
        masked = of_number(0) if mask is None else self.values.of(mask)
        if not isinstance(depth, int) or not isinstance(scale, int | float | None):
            return ANY
        scores = 2 * max(depth, 1) * max(q.most, 1) * max(k.most, 1) * max(abs(scale or 1), 1)
        is_known = scores < ABSORBED < self.largest and masked.high < ABSORBED
        if op.arg("dropout_p") or not is_known or any(x.nan for x in (q, k, v, masked)):
            return ANY
        low, high = 2 * min(float(v.low), 0.0), 2 * max(float(v.high), 0.0)
        return Interval(low, high, not v.is_bounded or max(-low, high) > self.largest)

    def under(self, condition: Scalar, given: Scalar, holds: bool) -> Interval:
        """Return the interval of a term assuming that a condition is true (or false)."""
        bounds = tuple(_comparisons(self, condition, holds))
        if not bounds:
            return self(given)
        inner = replace(self, bounds=(*self.bounds, *bounds), known={})
        return inner(given) if isinstance(given, Term) and given.value else inner._cut(given)

    def _bounded(self, given: Term, found: Interval) -> Interval:
        """Restrict the interval of an operand's element by the known inequalities about it and
        about the operands of the op that computes it.
        """
        found = self._cut(given, found)
        assert given.value is not None
        op, kind = given.value.owner, kind_of_value(given.value)
        values = {end.value for pair in self.bounds for end in pair[:2] if isinstance(end, Term)}
        if kind is None or not isinstance(op, Operation) or not _reads(op, values, self.depth):
            return found
        said = meaning(op)
        if said is None or said.element is None:
            return found
        inner = Evaluation(self.values, op, kind, self.bounds, self.depth - 1)
        return _both(found, inner(said.element))

    def _cut(self, given: Scalar, found: Interval | None = None) -> Interval:
        """Restrict the interval of a term by the known inequalities about this term."""
        found = self(given) if found is None else found
        outside = replace(self, bounds=(), known={})
        for less, more, may_be_nan in self.bounds:
            if self.same(less, given):
                found = _cut(found, high=outside(more), may_be_nan=may_be_nan)
            if self.same(more, given):
                found = _cut(found, low=outside(less), may_be_nan=may_be_nan)
        return found


RULES: dict[str, Callable[[Evaluation, Term], Interval]] = {}
"""The transfer function of each primitive, from `transfer_functions`."""


def _reads(op: Operation, values: set[SSAValue | None], depth: int) -> bool:
    """Whether an elementwise op, or an elementwise op in its operands up to `depth`, uses one of
    these values.
    """
    if depth == 0 or not is_of(op, "elementwise"):
        return False
    return any(
        value in values
        or (isinstance(value.owner, Operation) and _reads(value.owner, values, depth - 1))
        for value in operands_of(op)
    )


def _both(one: Interval, other: Interval) -> Interval:
    """Return the intersection of two intervals; if it is empty, the first."""
    low, high = max(one.low, other.low), min(one.high, other.high)
    if low > high:
        return one
    return Interval(low, high, one.nan and other.nan, one.whole or other.whole)


def _cut(
    x: Interval, *, low: Interval | None = None, high: Interval | None = None, may_be_nan: bool
) -> Interval:
    """Restrict an interval by an inequality: to numbers not below, or not above, those of another
    interval.
    """
    least = x.low if low is None or (may_be_nan and low.nan) else max(x.low, low.low)
    greatest = x.high if high is None or (may_be_nan and high.nan) else min(x.high, high.high)
    if least > greatest:
        return x  # The set is empty, so any statement about it holds.
    return Interval(least, greatest, x.nan and may_be_nan, x.whole)


def _comparisons(ask: Evaluation, condition: Scalar, holds: bool) -> Iterator[Bound]:
    """Yield the inequalities of two terms if a condition holds, or if it does not."""
    found, _ = ask.look(condition)
    if not isinstance(found, Term):
        return
    match found.function:
        case "not_":
            yield from _comparisons(ask, found.operands[0], not holds)
        case "and_" if holds:
            for part in found.operands:
                yield from _comparisons(ask, part, True)
        case "or_" if not holds:
            for part in found.operands:
                yield from _comparisons(ask, part, False)
        case "less" | "less_equal":
            one, other = found.operands
            yield (one, other, False) if holds else (other, one, True)
        case _:
            pass


_TRUTHS = frozenset("is_nan less less_equal equal not_ cast where".split())
"""Functions whose results are not of the op's type, or are already rounded to it."""
_EXACT = frozenset(
    "negate absolute minimum maximum greatest least some floor ceil round trunc sign".split()
)
"""Float functions that do not round."""


_BY_ROWS = frozenset(f"aten.{name}.default" for name in ("mm", "bmm", "matmul")) | {
    "xnnpack.batch_matrix_multiply"
}
"""Products of the rows of the first operand."""


def are_probabilities_of_rows(value: SSAValue, product: Operation) -> bool:
    """Whether each row that a matrix product sums over is one of probabilities, possibly moved as a
    whole.
    """
    if product.name not in _BY_ROWS or value is not product.operands[0]:
        return False
    while isinstance(op := value.owner, Operation):
        last = len(dims(value.type)) - 1
        if is_of(op, "probabilities"):  # A node's are along the last axis.
            return not isinstance(op, SchemaOp) or op.arg("dim") % (last + 1) == last
        axes = axis_map(op) if is_of(op, "movement") and len(op.operands) == 1 else None
        before = len(axes.shapes[0]) - 1 if axes is not None else -1
        if axes is None or before < 0 or axes.after(0, before) != last:
            return False
        value = op.operands[0]
    return False


def is_left_unread(weight: object, op: Operation, factor: Interval) -> bool:
    """Whether a weight of a product is not read, because it is large and its factor unbounded."""
    if factor.is_bounded or not isinstance(weight, SSAValue) or not is_of(op, "product"):
        return False
    return weight_key(weight) is not None and size(weight.type) > LARGEST_OF_MEANS


def has_rows(op: Operation) -> bool:
    """Whether an op sums products with the rows of a weight, `[out, …]`."""
    if op.name == "xnnpack.fully_connected":
        return "transpose_weights" not in op.properties
    is_layer = op.name == "aten.linear.default" or ".conv" in op.name
    return is_layer and meaning(op) is not None  # A transposed convolution has none.


def kind_of_value(value: SSAValue) -> Kind | None:
    """Return the kind of a tensor's elements; None if PyTorch has no such dtype."""
    return _kind_in(value.type)


@once_each
def _kind_in(type_: Attribute) -> Kind | None:
    if not isinstance(type_, TensorType) or not has_torch_dtype(element(type_)):
        return None
    return kind_of(element(type_))
