"""Between which numbers the elements of a value lie, whatever the inputs are.

Intervals are followed through ops that bound or move numbers: a sigmoid is from 0 to 1, a mean of
squares plus epsilon is epsilon at least. Nothing is assumed of inputs, parameters are read only if
they are small (a layer's only behind a bounded operand), and every end is widened by more than float32
rounds. NaN is a flag of its own: an interval speaks of the elements that are not NaN.

A norm over n elements gives numbers up to √n, whatever it reads: the projections, and the scores,
of attention behind a norm are bounded by the weights between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import exp, inf, isnan, log, prod, sqrt

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import has_torch_dtype, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.types import dims, element
from stepwell.ir.weights import UnknownValue
from stepwell.translate.rewrites.aten.norm_pattern import (
    LEAST_EPSILON,
    elements_of_norm,
    is_part_of_sum,
    is_plain,
)

LARGEST_READ = 1 << 18
"""Elements of a weight that are looked at."""
LARGEST_LAYER = 1 << 24
"""Elements of a layer's weight whose sums are taken."""
DEEPEST = 24
"""Ops that are followed back."""


@dataclass(frozen=True)
class Interval:
    """Every element is from `low` to `high`, or, if `nan`, NaN."""

    low: float = -inf
    high: float = inf
    nan: bool = True

    @property
    def is_bounded(self) -> bool:
        """Whether no element is infinite."""
        return -inf < self.low and self.high < inf

    @property
    def most(self) -> float:
        """The greatest size of a number in it."""
        return max(abs(self.low), abs(self.high))

    def widened(self) -> Interval:
        """With room for the rounding of an op or two, which keeps the sign."""
        return Interval(_outward(self.low, -1), _outward(self.high, 1), self.nan)


ANY = Interval()
Known = dict[tuple[SSAValue, int], Interval]


def interval(value: SSAValue, program: Program, known: Known | None = None) -> Interval:
    """The interval of a tensor's elements; `known` is shared by calls between which none changes."""
    return _Asking(program, DEEPEST, {} if known is None else known)(value)


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
    dtype = torch_dtype(held)
    found = interval(value, program)
    if not dtype.is_floating_point:
        return True
    largest = torch.finfo(dtype).max
    return -largest <= found.low and found.high <= largest


def most(values: Iterable[SSAValue], program: Program) -> list[float]:
    """The greatest size of each one's elements that are not NaN; ∞ if there is no bound."""
    known: Known = {}
    return [interval(value, program, known).most for value in values]


def is_never_nan(value: SSAValue, program: Program) -> bool:
    """Whether no element is NaN."""
    return not interval(value, program).nan


def _of(value: SSAValue, ask: _Asking) -> Interval:
    if not isinstance(value.type, TensorType) or not has_torch_dtype(element(value.type)):
        return ANY
    dtype = torch_dtype(element(value.type))
    if dtype == torch.bool:
        return Interval(0.0, 1.0, False)
    if not dtype.is_floating_point:
        return ANY if dtype.is_complex else _integers(dtype)
    if (key := weight_key(value)) is not None:
        return _of_weight(key, ask.program)
    op = value.owner
    if isinstance(op, XnnpackOp) and op.output_range is not None:
        return Interval(*op.output_range)
    if ask.depth == 0 or not isinstance(op, SchemaOp):
        return ANY
    rule = _RULES.get(op.name.split(".")[1])
    if rule is None:
        return ANY
    found = rule(op, _Asking(ask.program, ask.depth - 1, ask.known))
    if dtype != torch.float64:
        # What overflows is infinite; bounds follow.
        largest = torch.finfo(dtype).max
        low = -inf if found.low < -largest else found.low
        high = inf if found.high > largest else found.high
        found = Interval(low, high, found.nan)
    return found


def _integers(dtype: torch.dtype) -> Interval:
    info = torch.iinfo(dtype)
    return Interval(float(info.min), float(info.max), False)


def _of_weight(key: str, program: Program) -> Interval:
    if _count(program.weights.type_of(key)) > LARGEST_READ:
        return ANY
    held = program.weights.get(key)
    if not held.numel():
        return Interval(0.0, 0.0, False)
    if held.dtype not in (torch.float32, torch.float64):
        held = held.double()
    low, high = (float(end) for end in held.aminmax())
    if not isnan(low):  # A NaN would be both.
        return Interval(low, high, False)
    nan = bool(held.isnan().any())
    numbers = held[~held.isnan()]
    if not numbers.numel():
        return ANY
    return Interval(float(numbers.min()), float(numbers.max()), nan)


def _count(type_: Attribute) -> int:
    count = 1
    for size in dims(type_):
        count *= size if isinstance(size, int) else LARGEST_READ + 1
    return count


@dataclass(frozen=True)
class _Asking:
    """What a rule asks of its operands."""

    program: Program
    depth: int
    known: Known
    """What was found, by value and depth."""

    def __call__(self, operand: SSAValue) -> Interval:
        found = self.known.get((operand, self.depth))
        if found is None:
            found = self.known[operand, self.depth] = _of(operand, self)
        return found

    def most(self, operand: SSAValue | None) -> float:
        """The greatest size of an element that is not NaN; none if there is no operand."""
        return 0.0 if operand is None else self(operand).most

    def most_of_rows(self, weight: SSAValue) -> float:
        """The greatest sum of sizes along a row of a layer's weight, `[out, …]`."""
        key = weight_key(weight)
        if key is None or _count(weight.type) > LARGEST_LAYER:
            return inf
        try:
            held = self.program.weights.get(key)
        except UnknownValue:
            return inf
        if held.dim() < 2 or not held.numel() or not held.is_floating_point():
            return inf
        rows = held.detach().flatten(1).abs()  # A tenth of the time of `vector_norm`.
        found = float(rows.sum(1, dtype=torch.promote_types(rows.dtype, torch.float32)).max())
        return inf if isnan(found) else found


Ask = _Asking
Rule = Callable[[SchemaOp, Ask], Interval]


def _outward(number: float, sign: int) -> float:
    if number in (0.0, inf, -inf):
        return number
    return number * (1 + 2.0**-20) if (number > 0) == (sign > 0) else number * (1 - 2.0**-20)


def _product(one: float, other: float) -> float:
    return 0.0 if one == 0.0 or other == 0.0 else one * other


def _times(one: Interval, other: Interval) -> Interval:
    ends = [_product(a, b) for a in (one.low, one.high) for b in (other.low, other.high)]
    meets = (not one.is_bounded and other.low <= 0 <= other.high) or (
        not other.is_bounded and one.low <= 0 <= one.high
    )
    return Interval(min(ends), max(ends), one.nan or other.nan or meets).widened()


def _plus(one: Interval, other: Interval) -> Interval:
    cancels = (one.low == -inf and other.high == inf) or (one.high == inf and other.low == -inf)
    low = -inf if -inf in (one.low, other.low) else one.low + other.low
    high = inf if inf in (one.high, other.high) else one.high + other.high
    return Interval(low, high, one.nan or other.nan or cancels).widened()


def _other(op: SchemaOp, ask: Ask) -> Interval | None:
    """The second operand, tensor or number."""
    given = op.arg("other")
    if isinstance(given, SSAValue):
        return ask(given)
    if isinstance(given, int | float) and not isnan(given):
        return Interval(float(given), float(given), False)
    return None


def _add(op: SchemaOp, ask: Ask) -> Interval:
    other = _other(op, ask)
    return ANY if other is None or not is_plain(op) else _plus(ask(op.operands[0]), other)


def _sub(op: SchemaOp, ask: Ask) -> Interval:
    other = _other(op, ask)
    if other is None or not is_plain(op):
        return ANY
    return _plus(ask(op.operands[0]), Interval(-other.high, -other.low, other.nan))


def _mul(op: SchemaOp, ask: Ask) -> Interval:
    if len(op.operands) > 1 and op.operands[0] is op.operands[1]:
        return _square(op, ask)
    if (count := elements_of_norm(op)) is not None:
        return _within(sqrt(count))
    other = _other(op, ask)
    return ANY if other is None else _times(ask(op.operands[0]), other)


def _within(most: float) -> Interval:
    """Up to a number in size, NaN where the operand is infinite; twice that is room for rounding."""
    return Interval(-2 * most, 2 * most)


def _layer_norm(op: SchemaOp, ask: Ask) -> Interval:
    epsilon = op.arg("eps")
    sizes = [size for size in op.arg("normalized_shape") if isinstance(size, int)]
    if epsilon is not None and epsilon < LEAST_EPSILON:
        return ANY
    if len(sizes) < len(op.arg("normalized_shape")):
        return ANY
    return _scaled_norm(op, ask, prod(sizes))


def _group_norm(op: SchemaOp, ask: Ask) -> Interval:
    sizes = [size for size in dims(op.operands[0].type)[1:] if isinstance(size, int)]
    if len(sizes) < len(dims(op.operands[0].type)) - 1 or op.arg("eps") < LEAST_EPSILON:
        return ANY
    return _scaled_norm(op, ask, prod(sizes) // op.arg("num_groups"))


def _scaled_norm(op: SchemaOp, ask: Ask, count: int) -> Interval:
    scale = 1.0 if (held := op.operand("weight")) is None else ask.most(held)
    shift = ask.most(op.operand("bias")) if "bias" in op.SCHEMA.by_name else 0.0
    return _within(sqrt(count) * scale + shift)


def _layer(op: SchemaOp, ask: Ask) -> Interval:
    """A linear layer or a convolution: no sum is larger than its row's sizes together."""
    if "transposed" in op.SCHEMA.by_name and op.arg("transposed"):
        return ANY
    most = ask.most(op.operands[0])
    if most == inf:
        return ANY  # Nothing is gained by reading the weight.
    return _within(most * ask.most_of_rows(op.operands[1]) + ask.most(op.operand("bias")))


def _product_of_matrices(op: SchemaOp, ask: Ask) -> Interval:
    inner = dims(op.operands[0].type)[-1]
    if not isinstance(inner, int) or len(op.operands) != 2:
        return ANY
    return _within(inner * ask.most(op.operands[0]) * ask.most(op.operands[1]))


def _div(op: SchemaOp, ask: Ask) -> Interval:
    given = op.arg("other")
    if is_part_of_sum(op) and ask(op.operands[0]).low >= 0:
        return Interval(0.0, 1.0).widened()
    if "rounding_mode" in op.SCHEMA.by_name or not isinstance(given, int | float) or not given:
        return ANY
    factor = 1.0 / given
    return _times(ask(op.operands[0]), Interval(factor, factor, False)).widened()


def _square(op: SchemaOp, ask: Ask) -> Interval:
    held = ask(op.operands[0])
    least = 0.0 if held.low <= 0 <= held.high else min(abs(held.low), abs(held.high))
    return Interval(_product(least, least), _product(held.most, held.most), held.nan).widened()


def _pow(op: SchemaOp, ask: Ask) -> Interval:
    return _square(op, ask) if op.arg("exponent") in (2, 2.0) else ANY


def _abs(op: SchemaOp, ask: Ask) -> Interval:
    held = ask(op.operands[0])
    least = 0.0 if held.low <= 0 <= held.high else min(abs(held.low), abs(held.high))
    return Interval(least, held.most, held.nan)


def _neg(op: SchemaOp, ask: Ask) -> Interval:
    held = ask(op.operands[0])
    return Interval(-held.high, -held.low, held.nan)


def _exp(op: SchemaOp, ask: Ask) -> Interval:
    held = ask(op.operands[0])
    low = exp(held.low) if held.low < 700 else inf
    high = exp(held.high) if held.high < 700 else inf
    return Interval(low, high, held.nan).widened()


def _sqrt(op: SchemaOp, ask: Ask) -> Interval:
    held = ask(op.operands[0])
    low, high = sqrt(max(held.low, 0.0)), sqrt(max(held.high, 0.0))
    return Interval(low, high, held.nan or held.low < 0).widened()


def _clamp(op: SchemaOp, ask: Ask) -> Interval:
    held = ask(op.operands[0])
    names = ("min_val", "max_val") if "min_val" in op.SCHEMA.by_name else ("min", "max")
    low, high = (op.arg(name) for name in names)
    if any(end is not None and not isinstance(end, int | float) for end in (low, high)):
        return ANY
    bottom = -inf if low is None else float(low)
    top = inf if high is None else float(high)
    return Interval(min(max(held.low, bottom), top), min(max(held.high, bottom), top), held.nan)


def _relu(op: SchemaOp, ask: Ask) -> Interval:
    held = ask(op.operands[0])
    return Interval(max(held.low, 0.0), max(held.high, 0.0), held.nan)


def _between(low: float, high: float, of_infinity: bool = False) -> Rule:
    """A function whose results lie in an interval; `of_infinity` says that ±∞ gives NaN."""

    def rule(op: SchemaOp, ask: Ask) -> Interval:
        held = ask(op.operands[0])
        return Interval(low, high, held.nan or (of_infinity and not held.is_bounded))

    return rule


def _softmax(op: SchemaOp, ask: Ask) -> Interval:
    held = ask(op.operands[0])
    return Interval(0.0, 1.0, held.nan or not held.is_bounded).widened()


def _same(op: SchemaOp, ask: Ask) -> Interval:
    return ask(op.operands[0])


def _mean(op: SchemaOp, ask: Ask) -> Interval:
    held = ask(op.operands[0])
    overflows = -inf if held.low < 0 else held.low, inf if held.high > 0 else held.high
    if held.is_bounded and max(abs(held.low), abs(held.high)) < 1e30:
        overflows = held.low, held.high  # No sum of fewer than 1e8 of them is infinite.
    low, high = overflows
    # A sum of many numbers rounds more often than one product: half and twice is room enough.
    low = low / 2 if low > 0 else low * 2
    high = high * 2 if high > 0 else high / 2
    return Interval(low, high, held.nan or not held.is_bounded)


def _sum(op: SchemaOp, ask: Ask) -> Interval:
    held = ask(op.operands[0])
    low = 0.0 if held.low >= 0 else -inf
    high = 0.0 if held.high <= 0 else inf
    return Interval(low, high, held.nan or (low < 0 < high))


def _cat(op: SchemaOp, ask: Ask) -> Interval:
    return _any_of([ask(operand) for operand in op.operands])


def _any_of(held: list[Interval]) -> Interval:
    return Interval(
        min(one.low for one in held), max(one.high for one in held), any(o.nan for o in held)
    )


def _choice(op: SchemaOp, ask: Ask) -> Interval:
    """Of two sides, tensors or numbers, by a mask."""
    held: list[Interval] = []
    for name in ("self", "other", "value"):
        side = op.arg(name) if name in op.SCHEMA.by_name else None
        if isinstance(side, SSAValue):
            held.append(ask(side))
        elif isinstance(side, int | float):
            held.append(ANY if isnan(side) else Interval(float(side), float(side), False))
    return _any_of(held)


def _pad(op: SchemaOp, ask: Ask) -> Interval:
    held, filled = ask(op.operands[0]), float(op.arg("value") or 0)
    return ANY if isnan(filled) else _any_of([held, Interval(filled, filled, False)])


def _log(op: SchemaOp, ask: Ask) -> Interval:
    held = ask(op.operands[0])  # What an engine may read as zero has −∞.
    low, high = (log(end) if end >= LEAST_EPSILON else -inf for end in (held.low, held.high))
    return Interval(low, high, held.nan or held.low < 0).widened()


_RULES: dict[str, Rule] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "square": _square,
    "pow": _pow,
    "abs": _abs,
    "neg": _neg,
    "exp": _exp,
    "sqrt": _sqrt,
    "clamp": _clamp,
    "hardtanh": _clamp,
    "relu": _relu,
    "sigmoid": _between(0.0, 1.0),
    "hardsigmoid": _between(0.0, 1.0),
    "tanh": _between(-1.0, 1.0),
    "erf": _between(-1.0, 1.0),
    "sin": _between(-1.0, 1.0, of_infinity=True),
    "cos": _between(-1.0, 1.0, of_infinity=True),
    "atan": _between(-1.58, 1.58),
    "layer_norm": _layer_norm,
    "rms_norm": _layer_norm,
    "group_norm": _group_norm,
    "linear": _layer,
    "convolution": _layer,
    "bmm": _product_of_matrices,
    "mm": _product_of_matrices,
    "matmul": _product_of_matrices,
    "relu6": _between(0.0, 6.0),
    "_softmax": _softmax,
    "softmax": _softmax,
    "_safe_softmax": _softmax,
    "mean": _mean,
    "sum": _sum,
    "cat": _cat,
    "stack": _cat,
    "where": _choice,
    "masked_fill": _choice,
    "constant_pad_nd": _pad,
    "log": _log,
    **dict.fromkeys(
        (
            "view reshape _unsafe_view permute transpose t unsqueeze squeeze expand clone "
            "contiguous slice select flatten unflatten repeat roll flip detach alias narrow "
            "split split_with_sizes chunk unbind repeat_interleave expand_copy lift_fresh_copy "
            "_to_copy to amax amin topk gather index embedding"
        ).split(),
        _same,
    ),
}
"""By the operator's name, whatever its overload."""
