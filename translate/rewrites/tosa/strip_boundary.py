"""Let a quantised program take and give integers, as an integer target needs.

An input that is only quantised becomes its integers, a result that was only dequantised too; the
scales stand in the function's attributes `tosa.input_quantization`, `tosa.output_quantization`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, FunctionType, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.quant import DequantizeCast, QuantizeCast, StorageCast
from stepwell.dialects.quant.types import quantization, storage_element
from stepwell.ir.program import Program
from stepwell.ir.rewriting import History, Pass
from stepwell.ir.types import with_element


@dataclass(frozen=True)
class StripBoundary(Pass):
    """Quantised inputs and outputs become the method's own."""

    name: ClassVar[str] = "strip-boundary"

    def apply(self, program: Program, history: History) -> int:
        """The number of inputs and outputs changed."""
        return sum(_strip(method) for method in program.methods.values())


def _strip(method: FuncOp) -> int:
    block = method.body.block
    taken: list[str] = []
    given: list[str] = []
    changed = 0
    for argument in list(block.args):
        users = [use.operation for use in argument.uses]
        kinds = {user.results[0].type for user in users if isinstance(user, QuantizeCast)}
        if not users or len(kinds) != 1 or not all(isinstance(u, QuantizeCast) for u in users):
            taken.append("")
            continue
        (typed,) = kinds
        taken.append(_described(typed))
        held = quantization(typed)
        assert held is not None
        argument._type = with_element(typed, storage_element(held))  # pyright: ignore
        cast = StorageCast(argument, typed)
        assert block.first_op is not None
        block.insert_op_before(cast, block.first_op)
        for user in users:
            user.results[0].replace_all_uses_with(cast.results[0])
            user.detach()
            user.erase()
        changed += 1
    last = block.last_op
    assert isinstance(last, ReturnOp)
    for index, value in enumerate(last.operands):
        owner = value.owner
        if not isinstance(owner, DequantizeCast):
            given.append("")
            continue
        typed = owner.input.type
        given.append(_described(typed))
        last.operands[index] = _integers(owner.input, last)
        changed += 1
    types = ([a.type for a in block.args], [v.type for v in last.operands])
    method.properties["function_type"] = FunctionType.from_lists(*types)
    if changed:
        for name, texts in (("input", taken), ("output", given)):
            held_ = ArrayAttr([StringAttr(text) for text in texts])
            method.attributes[f"tosa.{name}_quantization"] = held_
    return changed


def _described(typed: Attribute) -> str:
    held = quantization(typed)
    assert held is not None
    return f"scale={held.scale!r} zero_point={held.zero_point}"


def _integers(value: SSAValue, before: ReturnOp) -> SSAValue:
    held = quantization(value.type)
    assert held is not None
    cast = StorageCast(value, with_element(value.type, storage_element(held)))
    block = before.parent
    assert block is not None
    block.insert_op_before(cast, before)
    return cast.results[0]
