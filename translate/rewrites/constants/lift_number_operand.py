"""Legalization: a number in the place of a tensor operand becomes a constant of the operands' type.

`x // 2` is exported as `aten.floor_divide.default(%x, 2)`, whose second argument is a tensor. Torch
wraps the number, and a wrapped number does not promote a type of its kind. A constant of the other
operands' own type means the same, and every kernel accepts it.

Before:
    %n = sym.constant 2 : i64 : !stepwell.int<"2">
    %y = aten.floor_divide.default(%x, %n) : (tensor<2x3xi64>, !stepwell.int<"2">) -> tensor<2x3xi64>
After:
    %y = aten.floor_divide.default(%x, dense<2>) : (tensor<2x3xi64>, tensor<1xi64>) -> tensor<2x3xi64>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from stepwell.dialects import sym
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import dtype_name, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element


@dataclass(frozen=True)
class NumberOperand:
    """A number that only tensor arguments read; the other operands share one dtype and rank."""

    op: sym.ConstantOp
    dtype: torch.dtype
    rank: int


@dataclass(frozen=True)
class LiftNumberOperand(Rewrite[NumberOperand]):
    """Replace a `sym.constant` that is a tensor operand by a constant tensor."""

    name: ClassVar[str] = "lift-number-operand"
    anchors: ClassVar[tuple[type[Operation], ...]] = (sym.ConstantOp,)

    def match(self, op: sym.ConstantOp, program: Program) -> NumberOperand | Refusal | None:
        """Match a number that its readers take as a tensor of a dtype that represents it
        exactly.
        """
        readers = [use.operation for use in op.result.uses]
        if not all(isinstance(r, SchemaOp) and reads_as_tensor(r, op) for r in readers):
            return None
        others = {
            (element(value.type), min(len(dims(value.type)), 1))
            for reader in readers
            for value in reader.operands
            if isinstance(value.type, TensorType)
        }
        if len(others) != 1:
            return Refusal("the other operands have several dtypes, or there are none")
        ((held, rank),) = others
        dtype = torch_dtype(held)
        if not holds(dtype, op.number):
            return Refusal(
                f"{op.number} promotes {dtype_name(held)}, or cannot be represented in it"
            )
        return NumberOperand(op, dtype, rank)

    def build(self, match: NumberOperand, rw: Rewriter) -> None:
        """Replace the number by the constant."""
        key = rw.weights.number(match.op.number, match.dtype, match.rank)
        rw.replace_value(match.op.result, rw.weight(key))
        rw.erase(match.op)


def reads_as_tensor(reader: SchemaOp, op: sym.ConstantOp) -> bool:
    """Whether an operator reads the number as a tensor argument only."""
    as_tensor = [
        name
        for name, argument in reader.SCHEMA.by_name.items()
        if argument.type.is_tensor and not argument.type.is_list and reader.arg(name) is op.result
    ]
    return len(as_tensor) == sum(operand is op.result for operand in reader.operands)


def holds(dtype: torch.dtype, number: float) -> bool:
    """Whether a dtype is of the number's kind or wider, and represents the number as torch does.

    In float32 and float64 torch rounds the number as the constant is rounded; in halves it may not.
    """
    if dtype == torch.bool or isinstance(number, bool):
        return False
    if dtype in (torch.float32, torch.float64):
        return True
    if isinstance(number, float) and not dtype.is_floating_point:
        return False
    return torch.tensor(number).to(dtype).item() == number
