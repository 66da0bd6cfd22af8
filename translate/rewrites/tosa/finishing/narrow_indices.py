"""Let 64-bit integers be 32-bit ones, where it is proven that no value needs more.

torch counts in int64, which TOSA has only with the extension `int64`.  Each 64-bit value gets an
interval: constants have theirs, ARGMAX that of its axis, arithmetic follows.  An input has what the
caller declares (the option `ranges`); one that only names rows has the rows' range, for a call with
any other is an error in torch too; any other has the 32 bits of the artefact's own input, which
holds no more.  Where every interval fits, every 64-bit type becomes i32, and the method says which
inputs and outputs did.  `run` refuses a value that is outside (`stepwell.ir.calling`).

Before:
    func.func @forward(%w: tensor<1x10x4xf32>, %i: tensor<1x6xi64>) -> tensor<1x6x4xf32> {
      %y = tosa.gather %w, %i : (tensor<1x10x4xf32>, tensor<1x6xi64>) -> tensor<1x6x4xf32>
      func.return %y : tensor<1x6x4xf32>
    }
After:
    func.func @forward(%w: tensor<1x10x4xf32>, %i: tensor<1x6xi32>) -> tensor<1x6x4xf32> {
      %y = tosa.gather %w, %i : (tensor<1x10x4xf32>, tensor<1x6xi32>) -> tensor<1x6x4xf32>
      func.return %y : tensor<1x6x4xf32>
    }
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import torch
from xdsl.dialects.builtin import ArrayAttr, FunctionType, IntegerType, StringAttr, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.targets import parse_target
from stepwell.ir.calling import NARROWED, declare_ranges
from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.diagnostics import Problem, UnsupportedError, describe_op, op_name
from stepwell.ir.dtypes import i1, i32, i64
from stepwell.ir.families import is_movement, moves_one
from stepwell.ir.program import Program
from stepwell.ir.rewriting import History, Pass
from stepwell.ir.types import dims, element, with_element
from stepwell.ir.weights import WeightStore, recipe
from stepwell.ir.xdsl_private import set_type
from stepwell.translate.rewrites.tosa.finishing.finish import not_lowered
from stepwell.translate.rewrites.tosa.finishing.float_intervals import FloatIntervals

NARROWED_OUTPUTS = "tosa.output_narrowed_from"
Interval = tuple[int, int]
LOW, HIGH = -(1 << 31), (1 << 31) - 1
HELP = (
    "declare what integer inputs hold (ranges={'name': (least, largest)}), add +int64 to a target "
    "of TOSA 1.1, or let the model compute in int32"
)

_PICKS = (t.GatherOp, t.ReduceMaxOp, t.ReduceMinOp)
"""Operators whose results hold elements of their first operand alone, beside those that move."""

_JOINS = (t.ConcatOp, t.MaximumOp, t.MinimumOp, t.SelectOp, t.ScatterOp, t.PadOp)
"""Operators whose results hold elements of their 64-bit operands."""

_INDEXED: dict[type[Operation], int] = {t.GatherOp: 1, t.ScatterOp: 1}
"""Which operand names rows of the first one."""


@recipe("as_int32")
def as_int32(weight: torch.Tensor) -> torch.Tensor:
    """64-bit integers that fit in 32 bits."""
    return weight.to(torch.int32)


@dataclass(frozen=True)
class NarrowIndices(Pass):
    """Every 64-bit integer to i32, unless the target has 64-bit ones; all or none."""

    target: str = "tosa-1.1+fp"
    name: ClassVar[str] = "narrow-indices"

    def apply(self, program: Program, history: History) -> int:
        """The number of values that became 32 bits wide."""
        if "int64" in parse_target(self.target).extensions:
            return 0
        if any(True for method in program.methods.values() for _ in not_lowered(method)):
            return 0  # what is left is refused with its own reasons
        declared = program.context.option("ranges") or {}
        return sum(
            _narrow(method, Intervals(program.weights, declare_ranges(method, declared)))
            for method in program.methods.values()
        )


def _is_wide(value: SSAValue) -> bool:
    return _is_of(value, i64)


def _is_of(value: SSAValue, held: Attribute) -> bool:
    return isinstance(value.type, TensorType) and element(value.type) == held


def _narrow(method: FuncOp, intervals: Intervals) -> int:
    wide = [value for value in _values(method) if _is_wide(value)]
    if not wide:
        return 0
    problems = [p for value in wide if (p := intervals.problem(value)) is not None]
    if problems:
        raise UnsupportedError(problems)
    block = method.body.block
    last = block.last_op
    assert isinstance(last, ReturnOp)
    names = [
        [StringAttr("int64" if _is_wide(value) else "") for value in values]
        for values in (block.args, last.operands)
    ]
    for value in wide:
        _retype(value, intervals.weights)
    _remove_casts(method)
    for attribute, texts in zip((NARROWED, NARROWED_OUTPUTS), names, strict=True):
        if any(text.data for text in texts):
            method.attributes[attribute] = ArrayAttr(texts)
    types = ([a.type for a in block.args], [v.type for v in last.operands])
    method.properties["function_type"] = FunctionType.from_lists(*types)
    return len(wide)


def _values(method: FuncOp) -> Iterator[SSAValue]:
    yield from method.body.block.args
    for op in method.walk():
        yield from op.results
        for region in op.regions:
            if op is not method:
                yield from region.block.args


def _retype(value: SSAValue, weights: WeightStore) -> None:
    owner = value.owner
    if isinstance(owner, WeightOp):
        new = WeightOp(
            weights.derive("as_int32", [owner.key.data]), with_element(value.type, i32), "constant"
        )
        block = owner.parent
        assert block is not None
        block.insert_op_before(new, owner)
        value.replace_all_uses_with(new.result)
        owner.detach()
        owner.erase()
        return
    set_type(value, with_element(value.type, i32))


def _remove_casts(method: FuncOp) -> None:
    """A cast between the widths is none any more."""
    for op in list(method.walk()):
        if isinstance(op, t.CastOp) and op.input.type == op.results[0].type:
            op.results[0].replace_all_uses_with(op.input)
            op.detach()
            op.erase()


@dataclass
class Intervals:
    """What is known of each integer; a sentence where it is nothing."""

    weights: WeightStore
    declared: Mapping[SSAValue, Interval] = field(default_factory=dict[SSAValue, "Interval"])
    known: dict[SSAValue, Interval | str] = field(default_factory=dict[SSAValue, "Interval | str"])
    floats: FloatIntervals = field(init=False)

    def __post_init__(self) -> None:
        self.floats = FloatIntervals(self.weights)

    def problem(self, value: SSAValue) -> Problem | None:
        """Why a value may need 64 bits, or None."""
        found = self.of(value)
        if not isinstance(found, str) and LOW <= found[0] <= found[1] <= HIGH:
            return None
        if isinstance(value.owner, Operation) and any(
            _is_wide(v) and self.problem(v) is not None for v in value.owner.operands
        ):
            return None  # it stands with what this was computed from
        reason = found if isinstance(found, str) else f"its values reach {found[0]} to {found[1]}"
        owner = value.owner
        name = op_name(owner) if isinstance(owner, Operation) else f"input {value.name_hint}"
        where = describe_op(owner) if isinstance(owner, Operation) else None
        return Problem(
            f"{name}: a 64-bit integer that no proof makes smaller: {reason}", where, HELP
        )

    def of(self, value: SSAValue) -> Interval | str:
        """Least and largest value, or why they are not known."""
        if value not in self.known:
            self.known[value] = self._found(value)
        return self.known[value]

    def _found(self, value: SSAValue) -> Interval | str:
        owner = value.owner
        if not isinstance(owner, Operation):
            if not isinstance(owner.parent_op(), FuncOp):
                return "a loop or a branch carries it"
            return self._of_input(value)
        key = weight_key(value)
        if key is not None:
            held = self.weights.get(key)
            return (int(held.min()), int(held.max())) if held.numel() else (0, 0)
        match owner:
            case t.ArgMaxOp():
                size = dims(owner.input.type)[owner.axis.value.data]
                return (0, size - 1) if isinstance(size, int) else (0, HIGH)
            case t.CastOp():
                held = element(owner.input.type)
                if isinstance(held, IntegerType):
                    bits = held.width.data
                    whole = (0, 1) if held == i1 else (-(1 << bits - 1), (1 << bits - 1) - 1)
                    return whole if held == i1 else self._within(owner.input, whole)
                for found in (self.floats.of(owner.input), self.floats.picked(owner)):
                    if math.isfinite(found[0]) and math.isfinite(found[1]):
                        return math.floor(min(found[0], 0.0)), math.ceil(max(found[1], 0.0))
            case t.AddOp() | t.SubOp() | t.MulOp() | t.IntDivOp():
                return self._arithmetic(owner)
            case t.AbsOp() | t.ClampOp() | t.ReduceSumOp():
                return self._of_one(owner)
            case _ if moves_one(owner) or isinstance(owner, _PICKS):
                return self.of(owner.operands[0])
            case _ if isinstance(owner, _JOINS):
                held = element(value.type)
                return self._joined([v for v in owner.operands if _is_of(v, held)])
            case _:
                pass
        return f"nothing is known of the values of {owner.name}"

    def _within(self, value: SSAValue, whole: Interval) -> Interval:
        """What is known of a narrower integer; where it may wrap around, it is any of its type."""
        found = self.of(value)
        if isinstance(found, str) or not whole[0] <= found[0] <= found[1] <= whole[1]:
            return whole
        return found

    def _of_input(self, value: SSAValue) -> Interval:
        if not value.uses:
            return 0, 0  # Nobody reads what it is.
        low, high = self.declared.get(value, (LOW, HIGH))
        least, most = self.demanded(value) or (LOW, HIGH)
        return max(low, least), min(high, most)

    def _of_one(self, op: t.AbsOp | t.ClampOp | t.ReduceSumOp) -> Interval | str:
        found = self.of(op.input)
        if isinstance(found, str):
            return found
        low, high = found
        if isinstance(op, t.AbsOp):
            return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
        if isinstance(op, t.ClampOp):
            least, most = (bound.value.data for bound in (op.min_val, op.max_val))
            return int(min(max(low, least), most)), int(max(min(high, most), least))
        size = dims(op.input.type)[op.axis.value.data]
        if not isinstance(size, int):
            return "it sums over an axis of a size known at run time"
        return min(size * low, 0), max(size * high, 0)

    def demanded(self, value: SSAValue) -> Interval | None:
        """The values that an input may have because all it does is name rows; None if it does more.

        A row counted from the end (`i < 0 ? i + n : i`) may be as low as -n.
        """
        if not value.uses:
            return 0, 0
        low, high = LOW, HIGH
        for use in value.uses:
            user = use.operation
            kind = type(user)
            if kind in _INDEXED and use.index == _INDEXED[kind]:
                rows = dims(user.operands[0].type)[1]
                found: Interval | None = (0, rows - 1) if isinstance(rows, int) else None
            elif is_movement(user) or _changes_width(user):
                found = self.demanded(user.results[0])
            elif isinstance(user, t.AddOp | t.GreaterOp) and _counts_from_the_end(user, value):
                continue
            elif isinstance(user, t.SelectOp) and use.index == 2:
                found = self._from_either_end(user)
            else:
                found = None
            if found is None:
                return None
            low, high = max(low, found[0]), min(high, found[1])
        return (low, high) if (low, high) != (LOW, HIGH) else None

    def _from_either_end(self, op: t.SelectOp) -> Interval | None:
        """The values of i in `i < 0 ? i + n : i` that names rows, alone or with other indices."""
        wrap = op.operands[1].owner
        if not isinstance(wrap, t.AddOp) or not _names_rows(op.results[0]):
            return None
        size = self.of(wrap.operands[1])
        return None if isinstance(size, str) or size[0] != size[1] else (-size[0], size[0] - 1)

    def _joined(self, values: list[SSAValue]) -> Interval | str:
        low, high = HIGH, LOW
        for value in values:
            found = self.of(value)
            if isinstance(found, str):
                return found
            low, high = min(low, found[0]), max(high, found[1])
        return low, high

    def _arithmetic(self, op: Operation) -> Interval | str:
        left, right = self.of(op.operands[0]), self.of(op.operands[1])
        if isinstance(left, str) or isinstance(right, str):
            return left if isinstance(left, str) else right
        if isinstance(op, t.AddOp):
            return left[0] + right[0], left[1] + right[1]
        if isinstance(op, t.SubOp):
            return left[0] - right[1], left[1] - right[0]
        if isinstance(op, t.IntDivOp):
            if right[0] <= 0 <= right[1]:
                largest = max(map(abs, left))  # by 1 or -1
                return -largest, largest
            ends = [int(Fraction(a, b)) for a in left for b in right]
            return min(ends), max(ends)
        ends = [a * b for a in left for b in right]
        return min(ends), max(ends)


def _changes_width(op: Operation) -> bool:
    """Whether an op makes 64-bit integers 32-bit ones, or the other way round."""
    if not isinstance(op, t.CastOp):
        return False
    return {element(op.input.type), element(op.results[0].type)} == {i32, i64}


def _names_rows(value: SSAValue) -> bool:
    """Whether a value does nothing but name rows, perhaps after it was joined with other indices."""
    return bool(value.uses) and all(
        _INDEXED.get(type(use.operation)) == use.index
        or (
            (
                is_movement(use.operation)
                or isinstance(use.operation, t.AddOp | t.MulOp)
                or _changes_width(use.operation)
            )
            and _names_rows(use.operation.results[0])
        )
        for use in value.uses
    )


def _counts_from_the_end(op: Operation, value: SSAValue) -> bool:
    """Whether an addition or comparison only serves `i < 0 ? i + n : i`."""
    return all(
        isinstance(use.operation, t.SelectOp) and use.operation.operands[2] is value
        for use in op.results[0].uses
    )
