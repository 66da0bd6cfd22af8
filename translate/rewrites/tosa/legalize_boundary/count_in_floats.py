"""Legalization: compute integers as whole floats where the target has no integer arithmetic.

The profile `fp` gathers by an index of i32, but has no operator that moves, compares or adds one.
Single precision represents every integer up to 2^24. Where range analysis proves that no operand
and no result of an operator is larger, the operator computes the same numbers in floats.

Before:
    func.func @forward(%w: tensor<1x10x4xf32>, %i: tensor<6xi32>) -> tensor<1x6x4xf32> {
      %s = tosa.const_shape {values = dense<[1, 6]> : tensor<2xindex>} : () -> !tosa.shape<2>
      %j = tosa.reshape %i, %s : (tensor<6xi32>, !tosa.shape<2>) -> tensor<1x6xi32>
      %y = tosa.gather %w, %j : (tensor<1x10x4xf32>, tensor<1x6xi32>) -> tensor<1x6x4xf32>
      func.return %y : tensor<1x6x4xf32>
    }
After:
    func.func @forward(%w: tensor<1x10x4xf32>, %i: tensor<6xi32>) -> tensor<1x6x4xf32> {
      %s = tosa.const_shape {values = dense<[1, 6]> : tensor<2xindex>} : () -> !tosa.shape<2>
      %f = tosa.cast %i : (tensor<6xi32>) -> tensor<6xf32>
      %g = tosa.reshape %f, %s : (tensor<6xf32>, !tosa.shape<2>) -> tensor<1x6xf32>
      %j = tosa.cast %g : (tensor<1x6xf32>) -> tensor<1x6xi32>
      %y = tosa.gather %w, %j : (tensor<1x10x4xf32>, tensor<1x6xi32>) -> tensor<1x6x4xf32>
      func.return %y : tensor<1x6x4xf32>
    }
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.targets import TosaTarget, parse_target
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.xdsl.xdsl_private import set_type
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_movement
from stepwell.ir.dtypes import f32, i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Pass
from stepwell.ir.types import element, with_element
from stepwell.ir.weights import WeightStore, recipe
from stepwell.translate.range_analysis import Interval, Values
from stepwell.translate.rewrites.tosa.legalize_boundary.narrow_indices import demanded

LARGEST = 1 << 24
"""Single precision represents every integer up to this one."""
_ARITHMETIC = (
    t.AddOp, t.SubOp, t.MulOp, t.AbsOp, t.MaximumOp, t.MinimumOp, t.ReduceMaxOp, t.ReduceMinOp,
    t.SelectOp, t.GreaterOp, t.GreaterEqualOp, t.EqualOp,
)  # fmt: skip
"""Operators that give the same result for whole floats as for integers."""


@recipe("as_whole_floats")
def as_whole_floats(weight: torch.Tensor) -> torch.Tensor:
    """Convert integers of up to 2^24 to single precision."""
    return weight.to(torch.float32)


@dataclass(frozen=True)
class CountInFloats(Pass):
    """Replace integer operators that the target lacks by operators on floats."""

    target: str = "tosa-1.1+fp"
    name: ClassVar[str] = "count-in-floats"

    def apply(self, program: Program, history: History) -> int:
        """Return the number of operators that now compute in floats."""
        target = parse_target(self.target)
        if "int" in target.profiles:
            return 0
        return sum(_in_floats(func, program, target) for func in program.methods.values())


def _in_floats(func: FuncOp, program: Program, target: TosaTarget) -> int:
    alone = Values(program)
    named: dict[SSAValue, Interval] = {
        value: Interval(*rows, False, True)
        for value in func.body.block.args
        if _is_counted(value) and (rows := demanded(value, alone)) is not None
    }
    values = Values(program, assumed=named)
    chosen = [op for op in func.walk() if _is_lacking(op, target) and _is_small(op, values)]
    casts: dict[tuple[SSAValue, Block], SSAValue] = {}
    for op in chosen:
        _convert(op, casts, program.weights)
    return len(chosen)


def _is_counted(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and element(value.type) == i32


def _is_lacking(op: Operation, target: TosaTarget) -> bool:
    computes = isinstance(op, _ARITHMETIC) or is_movement(op)
    return computes and any(_counted(op)) and "int" in target.missing(op)


def _counted(op: Operation) -> Iterator[SSAValue]:
    return (value for value in (*op.operands, *op.results) if _is_counted(value))


def _is_small(op: Operation, values: Values) -> bool:
    held = [values.of(value) for value in _counted(op)]
    return all(each.low >= -LARGEST and each.high <= LARGEST for each in held)


def _convert(
    op: Operation, casts: dict[tuple[SSAValue, Block], SSAValue], weights: WeightStore
) -> None:
    block = op.parent
    assert block is not None
    for index, value in enumerate(op.operands):
        if _is_counted(value):
            if (value, block) not in casts:
                made = _as_floats(value, weights)
                block.insert_op_before(made, op)
                casts[value, block] = made.results[0]
            op.operands[index] = casts[value, block]
    for result in op.results:
        if _is_counted(result):
            type_ = result.type
            set_type(result, with_element(type_, f32))
            back = t.CastOp.create(operands=[result], result_types=[type_])
            result.replace_all_uses_with(back.results[0])
            back.operands[0] = result
            block.insert_op_after(back, op)
            casts[back.results[0], block] = result


def _as_floats(value: SSAValue, weights: WeightStore) -> Operation:
    """Return the float operators that compute the same numbers."""
    owner, type_ = value.owner, with_element(value.type, f32)
    if isinstance(owner, WeightOp):
        key = weights.derive("as_whole_floats", [owner.key.data])
        return WeightOp(key, type_, "constant")
    return t.CastOp.create(operands=[value], result_types=[type_])
