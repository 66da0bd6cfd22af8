"""The `sym` dialect: arithmetic on numbers that are computed at run time.

A program with dynamic shapes computes sizes: `x.shape[0] * 2`. Each Python function that such a
graph may call is an op with its name. Dynamic arguments are operands; constants stay in
`arguments`, in which `#aten.dyn` refers to the next operand:

    %n = sym.mul [#aten.dyn, 2] (%s) : (!stepwell.int<"s77">) -> !stepwell.int<"2*s77">
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import torch
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr
from xdsl.ir import Attribute, Dialect, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.aten.attributes import (
    DYNAMIC,
    count_dynamic,
    python_value,
    scalar_attribute,
)
from stepwell.ir.compat.torch.torch_private import sym_sqrt
from stepwell.ir.declared.interpretation import interprets
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.types import BoolType, FloatType, IntType

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "neg": operator.neg,
    "pos": operator.pos,
    "abs": operator.abs,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "and": operator.and_,
    "or": operator.or_,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": builtins.round,
    "max": torch.sym_max,
    "min": torch.sym_min,
    "not": torch.sym_not,
    "ite": torch.sym_ite,
    "sum": torch.sym_sum,
    "float": torch.sym_float,
    "int": torch.sym_int,
    "sqrt": sym_sqrt,
}
"""Op name without `sym.` → the function that it calls, as named in FX graphs."""


class SymOp(IRDLOperation):
    """A call of a Python function on dynamic numbers."""

    FUNCTION: ClassVar[Callable[..., Any]]
    arguments: ArrayAttr[Attribute] = prop_def(ArrayAttr)
    values = var_operand_def(IntType | FloatType | BoolType)
    result = result_def(IntType | FloatType | BoolType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = (
        "$arguments `(` $values `)` attr-dict `:` functional-type($values, $result)"
    )

    @classmethod
    def make(cls, arguments: Sequence[Any], result_type: Attribute) -> Self:
        """Create a call of the function with numbers as arguments.

        Args:
            arguments: SSA values and Python numbers, in the function's order.
            result_type: `!stepwell.int`, `float` or `bool` with the result's expression.
        """
        attributes = [
            DYNAMIC if isinstance(item, SSAValue) else scalar_attribute(item) for item in arguments
        ]
        return cls.create(
            operands=[item for item in arguments if isinstance(item, SSAValue)],
            result_types=[result_type],
            properties={"arguments": ArrayAttr(attributes)},
        )

    def bind(self, values: Sequence[Any]) -> list[Any]:
        """Return the arguments of the call for the values of its operands."""
        rest: Any = iter(values)
        return [python_value(item, rest) for item in self.arguments.data]

    def call(self, values: Sequence[Any]) -> Any:
        """Evaluate the function for the values of the operands."""
        bound = self.bind(values)
        function = type(self).FUNCTION
        return function(bound) if function is torch.sym_sum else function(*bound)

    def verify_(self) -> None:
        """Check that the number of `#aten.dyn`s equals the number of operands."""
        needed = sum(count_dynamic(item) for item in self.arguments.data)
        if needed != len(self.values):
            raise VerifyException(
                f"{needed} arguments are dynamic, but the op has {len(self.values)} operands"
            )


def _define(name: str, function: Callable[..., Any]) -> type[SymOp]:
    body = {
        "name": f"sym.{name}",
        "__doc__": f"`{getattr(function, '__name__', name)}` on dynamic numbers.",
        "__module__": __name__,
        "__annotations__": {"FUNCTION": ClassVar[Callable[..., Any]]},
        "FUNCTION": staticmethod(function),
    }
    return irdl_op_definition(type(f"Sym{name.capitalize()}", (SymOp,), body))


OPS: dict[Callable[..., Any], type[SymOp]] = {
    function: _define(name, function) for name, function in FUNCTIONS.items()
}
"""Python function → the class of its op."""
OPS[operator.not_] = OPS[torch.sym_not]
OPS[math.sqrt] = OPS[FUNCTIONS["sqrt"]]
OPS[builtins.max], OPS[builtins.min] = OPS[torch.sym_max], OPS[torch.sym_min]
OPS[builtins.abs] = OPS[operator.abs]


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """A number as a value, for an operator that takes a tensor or a value (`maximum(x, 0)`)."""

    name = "sym.constant"
    value = prop_def(IntegerAttr | FloatAttr)
    result = result_def(IntType | FloatType | BoolType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = "$value attr-dict `:` type($result)"

    def __init__(self, value: int | float | bool) -> None:
        kinds = {bool: BoolType, int: IntType, float: FloatType}
        kind = kinds.get(type(value))
        if kind is None:
            raise UnsupportedError(
                f"the value has type {type(value).__name__}, must be bool, int or float"
            )
        super().__init__(
            properties={"value": scalar_attribute(value)}, result_types=[kind(str(value))]
        )

    @property
    def number(self) -> int | float | bool:
        """Return the number of a constant."""
        return python_value(self.value, iter(()))


@interprets(ConstantOp)
def _constant(op: ConstantOp, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (op.number,)


@interprets(SymOp)
def interpret(op: SymOp, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    """Interpret an op of the dialect `sym`: call its Python function on the numbers."""
    return (op.call(args),)


Sym = Dialect("sym", [ConstantOp, *dict.fromkeys(OPS.values())])
