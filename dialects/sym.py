"""The `sym` dialect: arithmetic on numbers that are computed at run time.

A program with dynamic shapes computes sizes: `x.shape[0] * 2`. Each Python function that such a
graph may call is an op with its name. Dynamic arguments are operands; constants stay in
`arguments`, in which `#aten.dyn` refers to the next operand:

    %n = sym.mul [#aten.dyn, 2] (%s) : (!stepwell.int<"s77">) -> !stepwell.int<"2*s77">
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

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
from stepwell.ir.compat.torch import torch_private
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.interpretation import interprets
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.types import BoolType, FloatType, IntType

_OF_PYTHON: dict[str, Callable[..., Any]] = {
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
}
_TORCH = ("max", "min", "not", "ite", "sum", "float", "int")


@functools.cache
def functions() -> dict[str, Callable[..., Any]]:
    """Return op names without `sym.` → the function that each calls, as named in FX graphs."""
    of_torch = {name: getattr(torch, f"sym_{name}") for name in _TORCH}
    return _OF_PYTHON | of_torch | {"sqrt": torch_private.sym_sqrt}


@functools.cache
def _classes() -> dict[Callable[..., Any], type[SymOp]]:
    also = {operator.not_: "not", math.sqrt: "sqrt", builtins.max: "max", builtins.min: "min"}
    named = {function: name for name, function in functions().items()} | also
    return {function: OPS[name] for function, name in (named | {builtins.abs: "abs"}).items()}


def op_of(function: Callable[..., Any]) -> type[SymOp] | None:
    """Return the op of a function in an FX graph, or None if the dialect has none."""
    return _classes().get(function)


class SymOp(IRDLOperation):
    """A call of a Python function on dynamic numbers."""

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
        function = type(self).function()
        return function(bound) if function is torch.sym_sum else function(*bound)

    @classmethod
    def function(cls) -> Callable[..., Any]:
        """Return the function that the op calls."""
        return functions()[cls.name.removeprefix("sym.")]

    def verify_(self) -> None:
        """Check that the number of `#aten.dyn`s equals the number of operands."""
        needed = sum(count_dynamic(item) for item in self.arguments.data)
        if needed != len(self.values):
            raise VerifyException(
                f"{needed} arguments are dynamic, but the op has {len(self.values)} operands"
            )


def _define(name: str) -> type[SymOp]:
    body = {
        "name": f"sym.{name}",
        "__doc__": f"`{name}` on dynamic numbers.",
        "__module__": __name__,
        "__annotations__": {},
    }
    return irdl_op_definition(type(f"Sym{name.capitalize()}", (SymOp,), body))


OPS: dict[str, type[SymOp]] = {name: _define(name) for name in (*_OF_PYTHON, *_TORCH, "sqrt")}
"""Op name without `sym.` → the class of the op."""


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


Sym = Dialect("sym", [ConstantOp, *OPS.values()])
