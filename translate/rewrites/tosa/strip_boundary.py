"""Let a quantised program take and give integers, as an integer target needs.

An input that is only quantised becomes its integers, a result that was only dequantised too; the
scales stand in the function's attributes `tosa.input_quantization`, `tosa.output_quantization`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from xdsl.dialects.builtin import FunctionType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.quant import DequantizeCast, QuantizeCast, StorageCast
from stepwell.dialects.quant.ops import quantize
from stepwell.dialects.quant.ports import INPUT, OUTPUT, state_meanings
from stepwell.dialects.quant.types import quantization, storage_element
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Converted, History, Pass
from stepwell.ir.types import with_element
from stepwell.ir.xdsl_private import set_type


@dataclass(frozen=True)
class StripBoundary(Pass):
    """Quantised inputs and outputs become the method's own."""

    name: ClassVar[str] = "strip-boundary"

    def apply(self, program: Program, history: History) -> int:
        """The number of inputs and outputs changed."""
        return sum(_strip(method) for method in program.methods.values())

    def crossing(self, func: FuncOp) -> tuple[Sequence[Converted], Sequence[Converted]]:
        """Quantise what was quantised first, and what was dequantised last."""
        types = (quantised_inputs(func), quantised_outputs(func))
        taken, given = ([_quantiser(typed) for typed in side] for side in types)
        return taken, given


def quantised_inputs(func: FuncOp) -> list[Attribute | None]:
    """The type of each input that is only quantised, to that one type."""
    found: list[Attribute | None] = []
    for argument in func.body.block.args:
        users = [use.operation for use in argument.uses]
        kinds = {user.results[0].type for user in users if isinstance(user, QuantizeCast)}
        alone = len(kinds) == 1 and all(isinstance(user, QuantizeCast) for user in users)
        found.append(kinds.pop() if alone else None)
    return found


def quantised_outputs(func: FuncOp) -> list[Attribute | None]:
    """The type of each output that was dequantised last."""
    last = func.body.block.last_op
    assert isinstance(last, ReturnOp)
    makers = [value.owner for value in last.operands]
    return [maker.input.type if isinstance(maker, DequantizeCast) else None for maker in makers]


def _quantiser(typed: Attribute | None) -> Converted:
    held = quantization(typed) if typed is not None else None
    return partial(quantize, held=held) if held is not None else None


def _strip(method: FuncOp) -> int:
    block = method.body.block
    taken, given = quantised_inputs(method), quantised_outputs(method)
    for argument, typed in zip(block.args, taken, strict=True):
        held = quantization(typed) if typed is not None else None
        if typed is None or held is None:
            continue
        users = [use.operation for use in argument.uses]
        set_type(argument, with_element(typed, storage_element(held)))
        cast = StorageCast(argument, typed)
        assert block.first_op is not None
        block.insert_op_before(cast, block.first_op)
        for user in users:
            user.results[0].replace_all_uses_with(cast.results[0])
            user.detach()
            user.erase()
    last = block.last_op
    assert isinstance(last, ReturnOp)
    for index, value in enumerate(last.operands):
        if isinstance(value.owner, DequantizeCast):
            last.operands[index] = _integers(value.owner.input, last)
    types = ([a.type for a in block.args], [v.type for v in last.operands])
    method.properties["function_type"] = FunctionType.from_lists(*types)
    changed = sum(typed is not None for typed in (*taken, *given))
    if changed:
        for side, types in ((INPUT, taken), (OUTPUT, given)):
            state_meanings(method, "tosa", side, types)
    return changed


def _integers(value: SSAValue, before: ReturnOp) -> SSAValue:
    held = quantization(value.type)
    assert held is not None
    cast = StorageCast(value, with_element(value.type, storage_element(held)))
    block = before.parent
    assert block is not None
    block.insert_op_before(cast, before)
    return cast.results[0]
