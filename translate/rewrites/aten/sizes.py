"""Symbolic sizes as values: where a rewrite needs `2*s77`, the op that gives it at run time.

A size is best asked of a tensor that has it; where none has, it is computed from those that have
its symbols. A number of another kind is one that the op was given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy
from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, SSAValue

from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.sym import FUNCTIONS, OPS
from stepwell.ir.rewriting import Rewriter
from stepwell.ir.size_text import parse_size, why_no_size
from stepwell.ir.torch_private import sympy_functions as torch_functions
from stepwell.ir.types import BoolType, Dim, FloatType, IntType, dims

_OPERATORS: dict[Any, str] = {
    sympy.Add: "add",
    sympy.Mul: "mul",
    torch_functions.FloorDiv: "floordiv",
    torch_functions.CleanDiv: "floordiv",
    torch_functions.Mod: "mod",
    torch_functions.PythonMod: "mod",
    torch_functions.Max: "max",
    torch_functions.Min: "min",
}
"""sympy function → the `sym` op that computes it, two arguments at a time."""


def can_compute(expression: Any, types: Collection[Attribute]) -> bool:
    """Whether `Sizes` can give an expression when it has seen values of these types."""
    if expression.is_Integer:
        return True
    text = str(expression)
    for type_ in types:
        if isinstance(type_, IntType | FloatType | BoolType) and type_.data == text:
            return True
        if isinstance(type_, TensorType) and text in dims(type_):
            return True
    return expression.func in _OPERATORS and all(
        can_compute(part, types) for part in expression.args
    )


def share_of(wanted: Dim, given: Dim) -> Fraction | None:
    """What to multiply a size with to get another, if that is one number whatever the symbols are.

    `share_of("8*s", "32*s")` is 1/4.
    """
    if any(why_no_size(str(size)) for size in (wanted, given)):
        return None
    one, other = parse_size(str(wanted)), parse_size(str(given))
    if not one.terms or not other.terms:
        return None
    share = Fraction(one.terms[0][1], other.terms[0][1])
    return share if one * share.denominator == other * share.numerator else None


@dataclass(frozen=True)
class InputSize:
    """A size as a share of that of an axis of an input of the method."""

    source: SSAValue
    axis: int
    share: Fraction

    def value(self, rw: Rewriter) -> SSAValue:
        """What asks the input, and multiplies and divides."""
        given = dims(self.source.type)[self.axis]
        asked = op_class("aten.sym_size.int").make(
            self.source, self.axis, result_types=[IntType(str(given))]
        )
        value, size = rw.insert(asked).results[0], parse_size(str(given))
        for name, number in (
            ("mul", self.share.numerator),
            ("floordiv", self.share.denominator),
        ):
            if number != 1:
                size = FUNCTIONS[name](size, number)
                made = OPS[FUNCTIONS[name]].make([value, number], IntType(str(size)))
                value = rw.insert(made).results[0]
        return value


def size_of_input(block: Block | None, size: Dim) -> InputSize | None:
    """The first axis of an input of the method of which a size is a share."""
    if block is None or not isinstance(block.parent_op(), FuncOp) or size == "?":
        return None
    for argument in block.args:
        if isinstance(argument.type, TensorType):
            for axis, given in enumerate(dims(argument.type)):
                if isinstance(given, str) and given != "?":
                    share = share_of(size, given)
                    if share is not None:
                        return InputSize(argument, axis, share)
    return None


class Sizes:
    """Gives sizes as values, inserting what computes them before the op that is rewritten."""

    def __init__(self, rw: Rewriter, operands: Sequence[SSAValue]) -> None:
        self._rw = rw
        self._values: dict[str, SSAValue | Callable[[], SSAValue]] = {}
        for operand in operands:
            self.see(operand)

    def see(self, value: SSAValue) -> None:
        """A number, or a tensor whose sizes may be asked for, from now on."""
        type_ = value.type
        if isinstance(type_, IntType | FloatType | BoolType):
            self._values[type_.data] = value
        elif isinstance(type_, TensorType):
            for axis, dim in enumerate(dims(type_)):
                if isinstance(dim, str) and dim not in self._values:
                    self._values[dim] = self._asking(value, axis, dim)

    def _asking(self, value: SSAValue, axis: int, dim: str) -> Callable[[], SSAValue]:
        def ask() -> SSAValue:
            size = op_class("aten.sym_size.int")
            return self._rw.insert(size.make(value, axis, result_types=[IntType(dim)])).results[0]

        return ask

    def value(self, expression: Any) -> SSAValue | int:
        """The value of a sympy expression, a plain int where it is one."""
        if expression.is_Integer:
            return int(expression)
        text = str(expression)
        found = self._values.get(text)
        if found is None:
            found = self._computed(expression, text)
        elif not isinstance(found, SSAValue):
            found = found()
        self._values[text] = found
        return found

    def _computed(self, expression: Any, text: str) -> SSAValue:
        cls = OPS[FUNCTIONS[_OPERATORS[expression.func]]]
        total, *rest = (self.value(part) for part in expression.args)
        shown = expression.args[0]
        for value, part in zip(rest, expression.args[1:], strict=True):
            shown = expression.func(shown, part)
            made = cls.make([total, value], IntType(str(shown)))
            total = self._rw.insert(made).results[0]
        assert isinstance(total, SSAValue), f"{text} is a number"
        return total
