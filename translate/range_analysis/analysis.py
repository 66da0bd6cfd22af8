"""Range analysis of elements: evaluates semantics on intervals through the program, once per value.

Nothing is assumed about inputs. Parameters are read if they are small (a layer's only if its input
is bounded). Results are cached in the context of the lowering until a pass begins, or a rewrite
changes the numbers of a value. A norm over n elements returns numbers up to √n, whatever its input:
therefore the weights bound the projections and the scores of attention after a norm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf, isnan, prod
from typing import Generic, TypeVar

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

import stepwell.dialects.reduction_semantics  # pyright: ignore[reportUnusedImport]
import stepwell.translate.range_analysis.transfer_functions  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.calls.calling import RANGES, declared_ranges
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.xdsl.xdsl_private import operands_of
from stepwell.ir.core import weight_key
from stepwell.ir.declared.numerics import Proof, all_of, flushes
from stepwell.ir.declared.scalar_semantics import Scalar, Term, meaning, range_of
from stepwell.ir.dtypes import has_torch_dtype, i64, is_float, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.types import dims, element
from stepwell.ir.weights import UnknownValue
from stepwell.translate.range_analysis.evaluation import (
    Evaluation,
    RowSums,
    has_rows,
    is_left_unread,
    kind_of_value,
)
from stepwell.translate.range_analysis.interval import ANY, SLACK, Interval, hull, of_number

LARGEST_READ = 1 << 18
"""The most elements of a weight that are read."""
LARGEST_LAYER = 1 << 24
"""The most elements of a layer's weight whose row sums are computed."""
ROWS = "row sums"
LONGEST_ROW = 1 << 22
"""The most f32 products of a sum for which `RowSums.slack` holds."""


ENGINES: dict[str, Callable[[Operation, Interval, Sequence[Interval], Program], Interval]] = {}
"""Target → a function of an op, its interval, those of its operands, and the program. It returns
the interval, widened by the results of the target's engines.
"""

_T = TypeVar("_T")


class _Asked(Exception):
    """A value that must be analyzed before the current one."""

    def __init__(self, value: SSAValue) -> None:
        super().__init__()
        self.value = value


@dataclass
class Analysis(ABC, Generic[_T]):
    """An analysis of the values of a program; each is analyzed once, operands first."""

    program: Program
    known: dict[SSAValue, _T] = field(default_factory=dict[SSAValue, _T])
    looking: bool = False

    def of(self, value: SSAValue) -> _T:
        """Return the result of the analysis for an SSA value; analyze it first if necessary."""
        if value in self.known:
            return self.known[value]
        if weight_key(value) is not None:  # Read only if a transfer function asks for it.
            found = self.known[value] = self.found(value)
            return found
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
        """Return the tensors, except weights, from which an op computes a value: they must be
        analyzed before it.
        """
        op = value.owner
        if not isinstance(op, Operation) or kind_of_value(value) is None or weight_key(value):
            return ()
        tensors = (v for v in operands_of(op) if isinstance(v.type, TensorType))
        return [v for v in tensors if weight_key(v) is None]

    @abstractmethod
    def found(self, value: SSAValue) -> _T:
        """Analyze a value, given the results for its op's operands."""


@dataclass
class Values(Analysis[Interval]):
    """The analysis of which intervals elements are in, and whether they may be NaN."""

    assumed: Mapping[SSAValue, Interval] = field(default_factory=dict[SSAValue, Interval])
    """The declared ranges of inputs."""

    def given(self, value: SSAValue) -> Interval:
        """Return the interval of a value that is not computed by an op with known semantics: its
        declared range, or all numbers of its type.
        """
        if value in self.assumed:
            return self.assumed[value]
        kind = kind_of_value(value)
        if kind is not None and (declared := _declared(value)) is not None:
            return kind.held(Interval(*declared, False, not kind.is_float))
        if kind is None or kind.is_float:
            return ANY
        return Interval(kind.low, kind.high, False, True)

    def found(self, value: SSAValue) -> Interval:
        """Return a value's interval: from a weight's elements, or from its op's semantics on the
        operands' intervals; else the declared range or all numbers of its type.
        """
        kind = kind_of_value(value)
        if kind is None:
            return ANY
        if (key := weight_key(value)) is not None:
            return self._of_weight(key, value)
        op = value.owner
        if not isinstance(op, Operation):
            return self.given(value)
        if op.name == "aten.scaled_dot_product_attention.default":
            return kind.held(Evaluation(self, op, kind).attention())
        said = meaning(op)
        if said is None or (said.element is not None and value is not op.results[0]):
            return self._in_range(op, self.given(value))
        if said.element is None:
            parts = [self.of_scalar(part) for part in said.moved]
            return self._in_range(op, hull(parts))
        return self._in_range(op, Evaluation(self, op, kind)(said.element))

    def of_scalar(self, given: Scalar) -> Interval:
        """Return the interval of an operand's element, or of a number."""
        if not isinstance(given, Term):
            return of_number(given)
        return ANY if given.value is None else self.of(given.value)

    def chosen(self, value: SSAValue) -> Interval:
        """Return the interval of the elements of a value that its users select, if all users are
        `where`-like ops; otherwise the value's own interval.
        """
        parts: list[Interval] = []
        for use in value.uses:
            op = use.operation
            said, kind = meaning(op), kind_of_value(op.results[0]) if op.results else None
            term = said.element if said else None
            if term is None or kind is None or term.function != "where":
                return self.of(value)
            condition, *sides = term.operands
            taken = [isinstance(side, Term) and side.value is value for side in sides]
            if not any(taken):
                return self.of(value)
            self.of(op.results[0])
            ask = Evaluation(self, op, kind)
            pairs = zip(sides, (True, False), taken, strict=True)
            parts += [ask.under(condition, side, holds) for side, holds, is_it in pairs if is_it]
        return hull(parts) if parts else self.of(value)

    def _in_range(self, op: Operation, found: Interval) -> Interval:
        target = "xnnpack" if isinstance(op, XnnpackOp) else self.program.context.target
        if (widened := ENGINES.get(target)) is not None:
            tensors = [v for v in operands_of(op) if isinstance(v.type, TensorType)]
            first = self.of(tensors[0]) if tensors else ANY
            held = [ANY if is_left_unread(v, op, first) else self.of(v) for v in tensors]
            found = widened(op, found, held, self.program)
        limits = op.output_range if isinstance(op, XnnpackOp) else range_of(op)
        if limits is None:
            return found
        low, high = limits
        return Interval(max(found.low, low), min(found.high, high), found.nan, found.whole)

    def _of_weight(self, key: str, value: SSAValue) -> Interval:
        if (sums := self.program.weights.facts.get((ROWS, key))) is not None:
            return Interval(sums.least(1.0, 0.0), sums.most(1.0, 0.0), False)
        held_as = self.program.weights.type_of(key)
        if _count(held_as) > LARGEST_READ and element(held_as) != i64:
            return self.given(value)
        weight = self.program.weights.get(key)
        if not weight.numel():
            return Interval(0, 0, False, True)
        if not weight.dtype.is_floating_point:
            return Interval(int(weight.min()), int(weight.max()), False, True)
        if weight.dtype not in (torch.float32, torch.float64):
            weight = weight.double()
        low, high = (float(end) for end in weight.aminmax())
        if not isnan(low):  # With a NaN, both would be NaN.
            whole = low == high and low.is_integer()
            return Interval(low, high, False, whole)
        numbers = weight[~weight.isnan()]
        if not numbers.numel():
            return ANY
        return Interval(float(numbers.min()), float(numbers.max()), True)

    def row_sums(self, weight: SSAValue) -> RowSums | None:
        """Return the largest sums along rows of a layer's weight, `[out, …]`; None if unknown."""
        key = weight_key(weight)
        if key is None or _count(weight.type) > LARGEST_LAYER:
            return None
        facts = self.program.weights.facts
        if (ROWS, key) not in facts:
            facts[ROWS, key] = self._sum_rows(key)
        return facts[ROWS, key]

    def _sum_rows(self, key: str) -> RowSums | None:
        type_ = self.program.weights.type_of(key)
        shape = [size for size in dims(type_) if isinstance(size, int)]
        count = prod(shape[1:])
        is_layer = len(shape) > 1 and 0 not in shape and is_float(element(type_))
        if not is_layer or count > LONGEST_ROW:
            return None
        found: list[torch.Tensor] = []
        try:
            for some in self.program.weights.rows(key):
                rows = some.detach().flatten(1)
                wide = torch.promote_types(rows.dtype, torch.float32)
                parts = rows.clamp(min=0), -rows.clamp(max=0)
                found.append(torch.stack([part.sum(1, dtype=wide) for part in parts]))
        except UnknownValue:
            return None
        positive, negative = torch.cat(found, 1).double()
        # A sum of n products rounds each by a factor of at most 1 ± (n + 1) · 2⁻²³, and these sums
        # by less: together below 1 + (n + 1) · 2⁻²¹ for n up to 2²².
        sums = RowSums(positive, negative, 1 + (count + 1) * 2.0**-21)
        return sums if sums.most(1.0, -1.0) < inf else None  # Nor NaN.


def _declared(value: SSAValue) -> tuple[float, float] | None:
    """Return the range that the caller declared for an input of a method."""
    method = value.owner.parent_op() if isinstance(value.owner, Block) else None
    if not isinstance(value, BlockArgument) or not isinstance(method, FuncOp):
        return None
    return declared_ranges(method)[value.index] if RANGES in method.attributes else None


def _is_known(argument: SSAValue) -> bool:
    """Whether an input of a method is bounded by its type, or by a declaration."""
    kind = kind_of_value(argument)
    return kind is not None and (not kind.is_float or _declared(argument) is not None)


def _count(type_: Attribute) -> int:
    count = 1
    for size in dims(type_):
        count *= size if isinstance(size, int) else LARGEST_READ + 1
    return count


# -- queries --------------------------------------------------------------------------------------


def values_of(program: Program) -> Values:
    """Return the analysis of a program, cached as long as it is valid."""
    facts = program.context.facts(Values, partial(Values, program))
    if facts.program is not program:  # A copy in the same context.
        program.context.forget()
        facts = program.context.facts(Values, partial(Values, program))
    return facts


def interval(value: SSAValue, program: Program) -> Interval:
    """Return the interval of a tensor's elements."""
    return values_of(program).of(value)


def is_within(value: SSAValue, low: float, high: float, program: Program) -> Proof | None:
    """Return a proof that every element is from `low` to `high`, or NaN."""
    found = interval(value, program)
    is_proved = low <= found.low and found.high <= high
    return Proof(f"every element is from {low:g} to {high:g}") if is_proved else None


def is_away_from_zero(value: SSAValue, program: Program) -> Proof | None:
    """Return a proof that no element is zero or denormal (NaN and infinities may occur)."""
    value_element = element(value.type)
    if not has_torch_dtype(value_element) or not torch_dtype(value_element).is_floating_point:
        return None
    least = torch.finfo(torch_dtype(value_element)).smallest_normal
    return is_within(value, least, inf, program) or is_within(value, -inf, -least, program)


def keeps_denormals(value: SSAValue, program: Program) -> Proof | None:
    """Return a proof that the target does not flush denormals, or that no element is denormal."""
    if not flushes(program.context):
        return Proof("the target keeps denormal numbers")
    return is_away_from_zero(value, program)


def is_bounded(value: SSAValue, program: Program) -> Proof | None:
    """Return a proof that no element is infinite in the value's dtype (NaN may occur)."""
    value_element = element(value.type)
    if not has_torch_dtype(value_element):
        return None
    is_float = torch_dtype(value_element).is_floating_point
    holds = not is_float or interval(value, program).is_bounded
    return Proof("no element is infinite") if holds else None


def most(values: Iterable[SSAValue], program: Program) -> list[float]:
    """Return the maximum magnitude of the elements of each value, without NaN; ∞ if it is
    unbounded.
    """
    return [interval(value, program).most for value in values]


def is_never_nan(value: SSAValue, program: Program) -> Proof | None:
    """Return a proof that no element is NaN."""
    return None if interval(value, program).nan else Proof("no element is NaN")


def is_summable(value: SSAValue, program: Program) -> Proof | None:
    """Return a proof that sums of up to 2²⁴ elements, in any order, are numbers."""
    of = element(value.type)
    largest = torch.finfo(torch_dtype(of)).max * 2.0**-24 if is_float(of) else 0.0
    is_small = is_within(value, -largest, largest, program)
    return all_of(is_never_nan(value, program), is_small)


def sums_are_finite(op: Operation, times: float, program: Program) -> Proof | None:
    """Return a proof that the inputs of a layer and its sums of products with a bias, added in any
    order, are numbers, also with every summand multiplied by up to `times`.
    """
    values = values_of(program)
    if not any(map(_is_known, (arg for func in program.methods.values() for arg in func.args))):
        return None  # Any input may be NaN: the operands need not be analyzed.
    x, weight, *bias = (value for value in op.operands if isinstance(value.type, TensorType))
    given = [values.of(value) for value in (x, *bias)]
    kind = kind_of_value(x)
    is_single = kind is not None and kind.slack <= SLACK  # Halves are summed as halves.
    are_numbers = all(held.is_bounded and not held.nan for held in given)
    rows = values.row_sums(weight) if is_single and are_numbers and has_rows(op) else None
    if rows is None:
        return None
    most = given[0].most * max(1.0, rows.most(1.0, -1.0)) + sum(b.most for b in given[1:])
    is_proved = 2 * times * most < torch.finfo(torch_dtype(element(x.type))).max
    return Proof("no sum of products overflows") if is_proved else None


def is_finite(value: SSAValue, program: Program) -> Proof | None:
    """Return a proof that no element is infinite or NaN."""
    if (key := weight_key(value)) is None:
        return all_of(is_bounded(value, program), is_never_nan(value, program))
    is_proved = bool(program.weights.get(key).isfinite().all())  # Regardless of its size.
    return Proof("every element is a number") if is_proved else None
