"""Integer inputs and outputs of a method, whose quantizations are in its attributes.

An input that is only quantized becomes its integers, and so does a result that was only
dequantized.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, cast

from xdsl.dialects.builtin import FunctionType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.quant import DequantizeCast, QuantizeCast, StorageCast
from stepwell.dialects.quant.ops import quantize
from stepwell.dialects.quant.ports import INPUT, OUTPUT, state_meanings
from stepwell.dialects.quant.types import quantization, storage_element
from stepwell.ir.compat.xdsl.xdsl_private import set_type
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Converted, History, Pass
from stepwell.ir.types import with_element

Types = tuple[Sequence[Attribute | None], Sequence[Attribute | None]]
"""The type to which all readers of an input quantize it, for each input; the type from which an
output is dequantized, for each output. None leaves a port unchanged.
"""


@dataclass(frozen=True)
class TakeIntegers(Pass):
    """A pass that makes methods take and return integers."""

    LEVEL: ClassVar[str]
    """One of `LEVELS`, whose attribute states the quantizations."""

    @abstractmethod
    def types(self, func: FuncOp) -> Types:
        """Return the quantized types of the ports that change."""

    def apply(self, program: Program, history: History) -> int:
        """Return the number of inputs and outputs changed."""
        methods = program.methods.values()
        return sum(_take_integers(func, self.LEVEL, *self.types(func)) for func in methods)

    def crossing(self, func: FuncOp) -> tuple[Sequence[Converted], Sequence[Converted]]:
        """Return the quantizers of inputs and dequantizers of outputs that move to the caller."""
        taken, given = self.types(func)
        return _quantizers(taken), _quantizers(given)


def quantized_input(argument: SSAValue) -> Attribute | str:
    """Return the type to which every reader quantizes an input, or why there is none."""
    users = [use.operation for use in argument.uses]
    if not users:
        return "nothing reads it"
    others = [user.name for user in users if not isinstance(user, QuantizeCast)]
    if others:
        return f"{others[0]} reads it as floats"
    kinds = {user.results[0].type for user in users}
    return kinds.pop() if len(kinds) == 1 else f"the value is quantized in {len(kinds)} ways"


def quantized_output(value: SSAValue) -> Attribute | str:
    """Return the type from which an output was dequantized, or why there is none."""
    if isinstance(value.owner, DequantizeCast):
        return value.owner.input.type
    return f"{getattr(value.owner, 'name', 'an input')} gives floats"


def _take_integers(
    func: FuncOp,
    level: str,
    taken: Sequence[Attribute | None],
    given: Sequence[Attribute | None],
) -> int:
    """Let a method take and return integers; return the number of changed ports."""
    block = func.body.block
    last = cast(ReturnOp, block.last_op)
    for argument, typed in zip(block.args, taken, strict=True):
        if typed is None:
            continue
        users = [use.operation for use in argument.uses]
        set_type(argument, _stored(typed))
        cast_ = StorageCast(argument, typed)
        block.insert_op_before(cast_, block.first_op or last)
        for user in users:
            user.results[0].replace_all_uses_with(cast_.results[0])
            user.detach()
            user.erase()
    for index, (value, typed) in enumerate(zip(last.operands, given, strict=True)):
        if typed is not None:
            cast_ = StorageCast(cast(DequantizeCast, value.owner).input, _stored(typed))
            block.insert_op_before(cast_, last)
            last.operands[index] = cast_.results[0]
    types = ([a.type for a in block.args], [v.type for v in last.operands])
    func.properties["function_type"] = FunctionType.from_lists(*types)
    changed = sum(typed is not None for typed in (*taken, *given))
    if changed:
        state_meanings(func, level, INPUT, taken)
        state_meanings(func, level, OUTPUT, given)
    return changed


def _quantizers(types: Sequence[Attribute | None]) -> list[Converted]:
    """Return the conversion of each port's value; None if the port is unchanged."""
    quantizations = [None if typed is None else quantization(typed) for typed in types]
    return [
        None if parameters is None else partial(quantize, parameters=parameters)
        for parameters in quantizations
    ]


def _stored(typed: Attribute) -> Attribute:
    typed_quantization = quantization(typed)
    assert typed_quantization is not None
    return with_element(typed, storage_element(typed_quantization))
