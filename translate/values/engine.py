"""What elements can be: meanings evaluated over intervals, through the whole program, once each.

Nothing is assumed of inputs. Parameters are read if they are small (a layer's only behind a bounded
operand). What was found is kept in the context of the lowering until a step begins, or a rewrite
gives a value other numbers. A norm over n elements gives numbers up to √n, whatever it reads: the
projections, and the scores, of attention behind a norm are bounded by the weights between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf, isnan
from typing import Generic, TypeVar

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

import stepwell.dialects.means_of_folds  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.axes import axis_map
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import has_torch_dtype, torch_dtype
from stepwell.ir.families import is_of
from stepwell.ir.means import Scalar, Term, count_of, keeps_axes, meaning
from stepwell.ir.once_each import once_each
from stepwell.ir.program import Program
from stepwell.ir.types import dims, element
from stepwell.ir.weights import UnknownValue
from stepwell.ir.xdsl_private import operands_of
from stepwell.translate.values.interval import ANY, Interval, Kind, hull, kind_of, of_number
from stepwell.translate.values.intervals import LEAST_EPSILON, RULES

LARGEST_READ = 1 << 18
"""Elements of a weight that are looked at."""
LARGEST_LAYER = 1 << 24
"""Elements of a layer's weight whose sums are taken."""


_T = TypeVar("_T")


class _Asked(Exception):
    """A value that has to be known before one that is being looked at."""

    def __init__(self, value: SSAValue) -> None:
        super().__init__()
        self.value = value


@dataclass
class Analysis(ABC, Generic[_T]):
    """What is known of each value of a program; each is looked at once, operands first."""

    program: Program
    known: dict[SSAValue, _T] = field(default_factory=dict[SSAValue, _T])
    looking: bool = False

    def of(self, value: SSAValue) -> _T:
        """What is known of a value's elements."""
        if value in self.known:
            return self.known[value]
        if self.looking:
            raise _Asked(value)
        self.looking = True
        try:
            return self._of(value)
        finally:
            self.looking = False

    def _of(self, value: SSAValue) -> _T:
        known, waiting = self.known, [value]
        while waiting:
            current = waiting[-1]
            if current in known:
                waiting.pop()
                continue
            fresh = [v for v in self.read(current) if v not in known]
            if fresh:
                waiting.extend(fresh)
                continue
            try:
                known[current] = self.found(current)
                waiting.pop()
            except _Asked as asked:
                waiting.append(asked.value)
        return known[value]

    def read(self, value: SSAValue) -> Iterable[SSAValue]:
        """The values that must be known first."""
        op = value.owner
        if not isinstance(op, Operation) or kind_of_value(value) is None or weight_key(value):
            return ()
        operands = operands_of(op)
        # What is divided by its spread is as large as that allows, mostly whatever was given.
        behind = operands[1:] if is_of(op, "normalisation") else operands
        return [v for v in behind if isinstance(v.type, TensorType)]

    @abstractmethod
    def found(self, value: SSAValue) -> _T:
        """What a value's elements are, from what is known of those that its op reads."""


@dataclass
class Values(Analysis[Interval]):
    """Between which numbers elements lie, and whether they may be NaN."""

    rows: dict[str, float] = field(default_factory=dict[str, float])
    """The greatest sum of sizes along a row, by the key of a layer's weight."""

    def given(self, value: SSAValue) -> Interval:
        """What is known of a value that no meaning is followed behind: an input, an opaque op."""
        kind = kind_of_value(value)
        if kind is None or kind.is_float:
            return ANY
        return Interval(kind.low, kind.high, False, True)

    def found(self, value: SSAValue) -> Interval:
        """From constants, and from the meaning of the op."""
        kind = kind_of_value(value)
        if kind is None:
            return ANY
        if (key := weight_key(value)) is not None:
            return self._of_weight(key, value)
        op = value.owner
        if not isinstance(op, Operation):
            return self.given(value)
        said = meaning(op)
        if said is None or (said.element is not None and value is not op.results[0]):
            return self._in_range(op, self.given(value))
        if said.element is None:
            parts = [self.of_scalar(part) for part in said.moved]
            return self._in_range(op, hull(parts))
        return self._in_range(op, Evaluation(self, op, kind)(said.element))

    def of_scalar(self, given: Scalar) -> Interval:
        """The interval of an operand's element, or of a number."""
        if not isinstance(given, Term):
            return of_number(given)
        return ANY if given.value is None else self.of(given.value)

    def _in_range(self, op: Operation, found: Interval) -> Interval:
        if not isinstance(op, XnnpackOp) or op.output_range is None:
            return found
        low, high = op.output_range
        return Interval(max(found.low, low), min(found.high, high), found.nan, found.whole)

    def _of_weight(self, key: str, value: SSAValue) -> Interval:
        if _count(self.program.weights.type_of(key)) > LARGEST_READ:
            return self.given(value)
        held = self.program.weights.get(key)
        if not held.numel():
            return Interval(0, 0, False, True)
        if not held.dtype.is_floating_point:
            return Interval(int(held.min()), int(held.max()), False, True)
        if held.dtype not in (torch.float32, torch.float64):
            held = held.double()
        low, high = (float(end) for end in held.aminmax())
        if not isnan(low):  # A NaN would be both.
            whole = low == high and low.is_integer()
            return Interval(low, high, False, whole)
        numbers = held[~held.isnan()]
        if not numbers.numel():
            return ANY
        return Interval(float(numbers.min()), float(numbers.max()), True)

    def most_of_rows(self, weight: SSAValue) -> float:
        """The greatest sum of sizes along a row of a layer's weight, `[out, …]`."""
        key = weight_key(weight)
        if key is None or _count(weight.type) > LARGEST_LAYER:
            return inf
        if key not in self.rows:
            self.rows[key] = self._sum_rows(key)
        return self.rows[key]

    def _sum_rows(self, key: str) -> float:
        try:
            held = self.program.weights.get(key)
        except UnknownValue:
            return inf
        if held.dim() < 2 or not held.numel() or not held.is_floating_point():
            return inf
        rows = held.detach().flatten(1).abs()  # A tenth of the time of `vector_norm`.
        found = float(rows.sum(1, dtype=torch.promote_types(rows.dtype, torch.float32)).max())
        return inf if isnan(found) else found


@dataclass
class Evaluation:
    """One op's meaning over intervals: what `intervals.RULES` ask of other terms."""

    values: Values
    op: Operation
    kind: Kind
    known: dict[Term, Interval] = field(default_factory=dict[Term, Interval])

    def __call__(self, given: Scalar) -> Interval:
        """The interval of a term or a number."""
        if not isinstance(given, Term):
            return self.kind.number(given)
        if given.value is not None:
            return self.values.of(given.value)
        found = self.known.get(given)
        if found is None:
            rule = RULES.get(given.function)
            found = ANY if rule is None else rule(self, given)
            is_exact = self.kind.is_float and given.function in _EXACT
            if given.function not in _TRUTHS and not is_exact:
                found = self.kind.held(found)
            self.known[given] = found
        return found

    @property
    def is_float(self) -> bool:
        """Whether the result is of floats."""
        return self.kind.is_float

    @property
    def slack(self) -> float:
        """What one rounding is off by, relative."""
        return self.kind.slack

    @property
    def largest(self) -> float:
        """The largest number of the result's type."""
        return float(self.kind.high)

    @property
    def count(self) -> int | None:
        """How many elements are folded for one of the result; None if that is symbolic."""
        return count_of(self.op)

    @property
    def nan_is_zero(self) -> bool:
        """Whether a NaN that is cast to an integer is zero, as TOSA says."""
        return self.op.name.startswith("tosa.")

    def look(self, given: Scalar) -> tuple[Scalar, Operation]:
        """What an element is in turn, with the op that it is of; other terms as they are."""
        if isinstance(given, Term) and given.value is not None:
            owner = given.value.owner
            if isinstance(owner, Operation) and given.value is owner.results[0]:
                said = meaning(owner)
                if said is not None and said.element is not None:
                    return said.element, owner
        return given, self.op

    def fold(self, given: Scalar, *functions: str) -> tuple[Term, Operation] | None:
        """What an element is if it is folded, and stands in the place of what it was folded of."""
        found, op = self.look(given)
        if not isinstance(found, Term) or found.function not in functions:
            return None
        return (found, op) if op is self.op or keeps_axes(op) else None

    def same(self, one: Scalar, other: Scalar) -> bool:
        """Whether two terms are one, or elements of one value in one place."""
        if one is other:
            return True
        if not isinstance(one, Term) or not isinstance(other, Term):
            return False
        if one.value is None or one.value is not other.value:
            return False
        places = [at for at, value in enumerate(self.op.operands) if value is one.value]
        axes = axis_map(self.op) if len(places) > 1 else None
        # A matrix times itself is no square: its rows are multiplied by its columns.
        return len(places) < 2 or (axes is not None and len({axes.links[at] for at in places}) == 1)

    def elements_of_norm(self, x: Scalar, factor: Scalar) -> int | None:
        """Of how many squares `x · rsqrt(average(x²) + ε)` takes the mean; None: it does not."""
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
        """Whether `x` is divided by its sum, or by that and a number that is not negative."""
        more, of = self.look(sum_)
        if isinstance(more, Term) and more.function == "add":
            inner = Evaluation(self.values, of, self.kind)
            if inner(more.operands[1]).low >= 0:
                sum_ = more.operands[0]
        found = self.fold(sum_, "total")
        return found is not None and self.same(found[0].operands[0], x)

    def is_of_greatest(self, given: Scalar) -> bool:
        """Whether a term is `exp(x - greatest(x))`, one of which is 1."""
        if not isinstance(given, Term) or given.function != "exp":
            return False
        less = given.operands[0]
        if not isinstance(less, Term) or less.function != "subtract":
            return False
        x, most_ = less.operands
        if not isinstance(most_, Term) or most_.function != "greatest":
            return False
        return self.same(most_.operands[0], x)

    def sum_of_products(self, given: Scalar) -> float | None:
        """What sums of products of an operand with a layer's weight are at most; None if others."""
        if not isinstance(given, Term) or given.function != "multiply":
            return None
        x, weight = given.operands
        size = self(x).most
        if not isinstance(weight, Term) or weight.value is None or size == inf:
            return None
        rows = self.values.most_of_rows(weight.value) if _has_rows(self.op) else inf
        return size * rows if rows < inf else None

    def under(self, condition: Scalar, given: Scalar, holds: bool) -> Interval:
        """What a term can be where a condition holds, or where it does not."""
        found = self(given)
        for less, more, may_be_nan in _comparisons(self, condition, holds):
            if self.same(less, given):
                found = _cut(found, high=self(more), may_be_nan=may_be_nan)
            if self.same(more, given):
                found = _cut(found, low=self(less), may_be_nan=may_be_nan)
        return found


def _cut(
    x: Interval, *, low: Interval | None = None, high: Interval | None = None, may_be_nan: bool
) -> Interval:
    """What of an interval is not below one of a term, or not above one."""
    least = x.low if low is None or (may_be_nan and low.nan) else max(x.low, low.low)
    greatest = x.high if high is None or (may_be_nan and high.nan) else min(x.high, high.high)
    if least > greatest:
        return x  # Nothing is there; whatever is said of it is true.
    return Interval(least, greatest, x.nan and may_be_nan, x.whole)


def _comparisons(
    ask: Evaluation, condition: Scalar, holds: bool
) -> Iterator[tuple[Scalar, Scalar, bool]]:
    """`(a, b, may_be_nan)`: a is at most b where a condition holds (or does not), or one is NaN."""
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
"""Functions whose results are not of the type of the op's, or are already."""
_EXACT = frozenset(
    "negate absolute minimum maximum greatest least some floor ceil round trunc sign".split()
)
"""Functions of floats that do not round."""


def _has_rows(op: Operation) -> bool:
    """Whether a weight's rows, `[out, …]`, are what an op sums products with."""
    name = op.name
    return name == "aten.linear.default" or ".conv" in name


def kind_of_value(value: SSAValue) -> Kind | None:
    """The kind of a tensor's elements; None where torch has none."""
    return _kind_in(value.type)


@once_each
def _kind_in(type_: Attribute) -> Kind | None:
    if not isinstance(type_, TensorType) or not has_torch_dtype(element(type_)):
        return None
    return kind_of(element(type_))


def _count(type_: Attribute) -> int:
    count = 1
    for size in dims(type_):
        count *= size if isinstance(size, int) else LARGEST_READ + 1
    return count


# -- what is asked --------------------------------------------------------------------------------


def values_of(program: Program) -> Values:
    """What is known of a program's values, kept while it stays true."""
    found = program.context.facts(Values, partial(Values, program))
    if found.program is not program:  # A copy, in the same context.
        program.context.forget()
        found = program.context.facts(Values, partial(Values, program))
    return found


def interval(value: SSAValue, program: Program) -> Interval:
    """The interval of a tensor's elements."""
    return values_of(program).of(value)


def is_away_from_zero(value: SSAValue, program: Program) -> bool:
    """Whether no element is zero or denormal (NaN and infinities may be there)."""
    held = element(value.type)
    if not has_torch_dtype(held) or not torch_dtype(held).is_floating_point:
        return False
    least = torch.finfo(torch_dtype(held)).smallest_normal
    found = interval(value, program)
    return found.low >= least or found.high <= -least


def is_bounded(value: SSAValue, program: Program) -> bool:
    """Whether no element is infinite in the value's dtype (NaN may be there)."""
    held = element(value.type)
    if not has_torch_dtype(held):
        return False
    return not torch_dtype(held).is_floating_point or interval(value, program).is_bounded


def most(values: Iterable[SSAValue], program: Program) -> list[float]:
    """The greatest size of each one's elements that are not NaN; ∞ if there is no bound."""
    return [interval(value, program).most for value in values]


def is_never_nan(value: SSAValue, program: Program) -> bool:
    """Whether no element is NaN."""
    return not interval(value, program).nan
