"""Legalization: user-defined operators with a name in TOSA become CUSTOM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr, TensorType

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.custom import Custom, custom_of
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Pass, Refusal
from stepwell.ir.types import is_static
from stepwell.translate.rewrites.tosa.operators.lowering import unfit


@dataclass(frozen=True)
class LowerCustom(Pass):
    """Build one CUSTOM operator per op; arguments that are not tensors become its bytes."""

    name: ClassVar[str] = "lower-custom-to-tosa"

    def apply(self, program: Program, history: History) -> int:
        """Return the number of ops lowered."""
        count = 0
        for op in [op for op in program.module.walk() if custom_of(type(op)) is not None]:
            assert isinstance(op, SchemaOp)
            made = _lowered(op)
            if isinstance(made, Refusal):
                history.refuse(self.name, op, made.reason)
                continue
            block = op.parent_block()
            assert block is not None
            made.location = op.location
            block.insert_op_before(made, op)
            for old, new in zip(op.results, made.results, strict=True):
                new.name_hint = old.name_hint
                old.replace_all_uses_with(new)
            op.detach()
            op.erase()
            count += 1
        return count


def _lowered(op: SchemaOp) -> t.CustomOp | Refusal:
    custom = custom_of(type(op))
    assert custom is not None
    for value in (*op.operands, *op.results):
        if not isinstance(value.type, TensorType) or not is_static(value.type):
            return Refusal("a tensor's shape is symbolic, or an argument is known only at run time")
        if (refusal := unfit(value)) is not None:
            return refusal
    bytes_ = _attributes(op, custom)
    if isinstance(bytes_, Refusal):
        return bytes_
    return t.CustomOp.create(
        operands=list(op.operands),
        result_types=[result.type for result in op.results],
        properties={
            "domain_name": StringAttr(custom.domain),
            "operator_name": StringAttr(custom.operator),
            "implementation_attrs": StringAttr(bytes_.decode("latin-1")),
        },
    )


def _attributes(op: SchemaOp, custom: Custom) -> bytes | Refusal:
    """Return the arguments that are not tensors; CUSTOM requires that all tensors are present."""
    held: dict[str, object] = {}
    for argument in op.SCHEMA.arguments:
        if not argument.type.is_tensor:
            held[argument.name] = op.arg(argument.name)
        elif argument.type.is_list or op.operand(argument.name) is None:
            return Refusal(
                f"{argument.name} is a list of tensors, or absent; CUSTOM takes single tensors"
            )
    try:
        return custom.pack(held)
    except (TypeError, ValueError) as error:
        return Refusal(f"the arguments cannot be encoded as bytes: {error}")
