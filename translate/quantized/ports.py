"""Integer inputs and outputs of a method, whose quantizations are in its attributes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from xdsl.dialects.builtin import FunctionType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute

from stepwell.dialects.quant import DequantizeCast, StorageCast
from stepwell.dialects.quant.ops import quantize
from stepwell.dialects.quant.ports import INPUT, OUTPUT, state_meanings
from stepwell.dialects.quant.types import quantization, storage_element
from stepwell.ir.compat.xdsl.xdsl_private import set_type
from stepwell.ir.rewriting.rewrite import Converted
from stepwell.ir.types import with_element


def take_integers(
    func: FuncOp,
    level: str,
    taken: Sequence[Attribute | None],
    given: Sequence[Attribute | None],
) -> int:
    """Let a method take and return integers; return the number of changed ports.

    Args:
        func: the method.
        level: one of `LEVELS`, whose attribute states the quantizations.
        taken: for each input the type to which all its users quantize it; None leaves it unchanged.
        given: for each output the type from which it is dequantized; None leaves it unchanged.
    """
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


def quantizers(types: Sequence[Attribute | None]) -> list[Converted]:
    """Return the conversion of each port's value; None if it is unchanged."""
    quantizations = [None if typed is None else quantization(typed) for typed in types]
    return [
        None if parameters is None else partial(quantize, parameters=parameters)
        for parameters in quantizations
    ]


def _stored(typed: Attribute) -> Attribute:
    typed_quantization = quantization(typed)
    assert typed_quantization is not None
    return with_element(typed, storage_element(typed_quantization))
