"""Narrowing: 64-bit integers become 32-bit ones where range analysis proves that they fit.

torch counts in int64, which TOSA has only with the extension `int64`.  Each 64-bit value gets an
interval: a constant's own values, for ARGMAX the indices of its axis, and interval arithmetic for
other operators.  An input has the interval that the caller declares (the option `ranges`). An input
that is only used as row indices has the range of the rows, because a call with any other index is
an error in torch too. Any other input has the 32 bits of the artifact's own input, which cannot
represent more.  If every interval fits, every 64-bit type becomes i32, and the method states which
inputs and outputs changed.  `run` refuses an input value outside its interval
(`stepwell.ir.calls.calling`).

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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, FunctionType, StringAttr, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.targets import parse_target
from stepwell.ir.calls.calling import NARROWED, declared_ranges
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.xdsl.xdsl_private import set_type
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_movement
from stepwell.ir.diagnostics import Problem, UnsupportedError, describe_op, op_name
from stepwell.ir.dtypes import i32, i64
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Pass
from stepwell.ir.types import dims, element, with_element
from stepwell.ir.weights import WeightStore, recipe
from stepwell.translate.range_analysis import Interval, Values
from stepwell.translate.rewrites.tosa.legalize_boundary.finish import not_lowered

NARROWED_OUTPUTS = "tosa.output_narrowed_from"
Rows = tuple[int, int]
"""The least and the greatest number that is a row index."""
LOW, HIGH = -(1 << 31), (1 << 31) - 1
WIDE = Interval(-(1 << 63), (1 << 63) - 1, False, True)
HELP = (
    "declare what integer inputs hold (ranges={'name': (least, largest)}), add +int64 to a target "
    "of TOSA 1.1, or let the model compute in int32"
)

_INDEXED: dict[type[Operation], int] = {t.GatherOp: 1, t.ScatterOp: 1}
"""Which operand holds row indices of the first operand."""


@recipe("as_int32")
def as_int32(weight: torch.Tensor) -> torch.Tensor:
    """Convert 64-bit integers that fit in 32 bits."""
    return weight.to(torch.int32)


@dataclass(frozen=True)
class NarrowIndices(Pass):
    """Change every 64-bit integer to i32, unless the target has 64-bit ones; all or none."""

    target: str = "tosa-1.1+fp"
    name: ClassVar[str] = "narrow-indices"

    def apply(self, program: Program, history: History) -> int:
        """Return the number of values that became 32 bits wide."""
        if "int64" in parse_target(self.target).extensions:
            return 0
        if any(True for method in program.methods.values() for _ in not_lowered(method)):
            return 0  # remaining ops are refused with their own reasons
        return sum(
            _narrow(method, Values(program, assumed=assumed(method, program)))
            for method in program.methods.values()
        )


def _is_wide(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and element(value.type) == i64


def _narrow(method: FuncOp, values: Values) -> int:
    wide = [value for value in _values(method) if _is_wide(value)]
    if not wide:
        return 0
    problems = [p for value in wide if (p := problem(value, values)) is not None]
    if problems:
        raise UnsupportedError(problems)
    block = method.body.block
    last = block.last_op
    assert isinstance(last, ReturnOp)
    names = [
        [StringAttr("int64" if _is_wide(value) else "") for value in ports]
        for ports in (block.args, last.operands)
    ]
    for value in wide:
        _retype(value, values.program.weights)
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
    """Remove casts between the two widths: they have no effect now."""
    for op in list(method.walk()):
        if isinstance(op, t.CastOp) and op.input.type == op.results[0].type:
            op.results[0].replace_all_uses_with(op.input)
            op.detach()
            op.erase()


def problem(value: SSAValue, values: Values) -> Problem | None:
    """Return why a value may need 64 bits, or None."""
    interval = values.of(value)
    if fits(interval):
        return None
    owner = value.owner
    if isinstance(owner, t.CastOp) and fits(values.chosen(value)):
        return None  # Where it does not fit, another value is selected.
    if isinstance(owner, Operation) and any(
        _is_wide(v) and problem(v, values) is not None for v in owner.operands
    ):
        return None  # it is reported with the value that this was computed from
    name = op_name(owner) if isinstance(owner, Operation) else f"input {value.name_hint}"
    where = describe_op(owner) if isinstance(owner, Operation) else None
    reason = f"its values reach {interval.low} to {interval.high}"
    if interval == WIDE:
        reason = _why_any(owner)
    return Problem(f"{name}: a 64-bit integer is not proved to fit in 32: {reason}", where, HELP)


def _why_any(owner: Operation | Block) -> str:
    if not isinstance(owner, Operation):
        return "a loop or a branch carries it"
    if isinstance(owner, t.ReduceSumOp):
        return "it sums over an axis of a size known at run time"
    return f"nothing is known of the values of {owner.name}"


def fits(interval: Interval) -> bool:
    """Whether an interval contains only 32-bit integers."""
    return interval.low >= LOW and interval.high <= HIGH


def assumed(method: FuncOp, program: Program) -> dict[SSAValue, Interval]:
    """Return each 64-bit input's range: declared, or of the rows that it indexes, or 32 bits."""
    values = Values(program)
    inputs: dict[SSAValue, Interval] = {}
    for value, declared in zip(method.body.block.args, declared_ranges(method), strict=True):
        if not _is_wide(value):
            continue
        # The range of an unused input is arbitrary.
        low, high = declared or (LOW, HIGH) if value.uses else (0, 0)
        least, most = demanded(value, values) or (LOW, HIGH)
        inputs[value] = Interval(max(low, least), min(high, most), False, True)
    return inputs


def demanded(value: SSAValue, values: Values) -> Rows | None:
    """Return the range of an input that is only used as row indices: that of the rows; None for
    others.

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
            read_rows: Rows | None = (0, rows - 1) if isinstance(rows, int) else None
        elif is_movement(user) or _changes_width(user):
            read_rows = demanded(user.results[0], values)
        elif isinstance(user, t.AddOp | t.GreaterOp) and _counts_from_the_end(user, value):
            continue
        elif isinstance(user, t.SelectOp) and use.index == 2:
            read_rows = _from_either_end(user, values)
        else:
            read_rows = None
        if read_rows is None:
            return None
        low, high = max(low, read_rows[0]), min(high, read_rows[1])
    return (low, high) if (low, high) != (LOW, HIGH) else None


def _from_either_end(op: t.SelectOp, values: Values) -> Rows | None:
    """Return the rows that i may select in the row index `i < 0 ? i + n : i`, -n to n - 1; else
    None.
    """
    wrap = op.operands[1].owner
    if not isinstance(wrap, t.AddOp) or not _names_rows(op.results[0]):
        return None
    size = values.of(wrap.operands[1])
    return (-int(size.low), int(size.high) - 1) if size.is_number else None


def _changes_width(op: Operation) -> bool:
    """Whether an op converts 64-bit integers to 32-bit ones, or the other way round."""
    if not isinstance(op, t.CastOp):
        return False
    return {element(op.input.type), element(op.results[0].type)} == {i32, i64}


def _names_rows(value: SSAValue) -> bool:
    """Whether a value is only used as row indices, possibly concatenated with other indices."""
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
    """Whether an addition or comparison is only part of `i < 0 ? i + n : i`."""
    return all(
        isinstance(use.operation, t.SelectOp) and use.operation.operands[2] is value
        for use in op.results[0].uses
    )
