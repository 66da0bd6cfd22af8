"""The dialect `toy`: three ops on tensors of one type, and their level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from xdsl.dialects.builtin import Float64Type, FloatAttr, TensorType
from xdsl.ir import Attribute, Dialect, Operation
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from stepwell import Level, infers, interprets


@irdl_op_definition
class AddOp(IRDLOperation):
    """`toy.add %x, %y`: x + y, elementwise."""

    name = "toy.add"
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str | None] = (
        "$x `,` $y attr-dict `:` `(` type(operands) `)` `->` type($result)"
    )


@irdl_op_definition
class ScaleOp(IRDLOperation):
    """`toy.scale %x, 2.0 : f64`: a constant times x."""

    name = "toy.scale"
    x = operand_def(TensorType)
    factor = prop_def(FloatAttr[Float64Type])
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str | None] = (
        "$x `,` $factor attr-dict `:` `(` type(operands) `)` `->` type($result)"
    )


@irdl_op_definition
class ReluOp(IRDLOperation):
    """`toy.relu %x`: the maximum of x and 0."""

    name = "toy.relu"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str | None] = (
        "$x attr-dict `:` `(` type(operands) `)` `->` type($result)"
    )


@infers(AddOp, ScaleOp, ReluOp)
def type_of_first(op: Operation) -> Sequence[Attribute]:
    """The result has the operands' type; there is no broadcasting."""
    return (op.operands[0].type,)


@interprets(AddOp)
def meaning_of_add(op: Operation, args: Sequence[Any], interpreter: Any) -> Sequence[Any]:
    """Add, rounded."""
    return (args[0] + args[1],)


@interprets(ScaleOp)
def meaning_of_scale(op: ScaleOp, args: Sequence[Any], interpreter: Any) -> Sequence[Any]:
    """Multiply, rounded."""
    return (args[0] * op.factor.value.data,)


@interprets(ReluOp)
def meaning_of_relu(op: Operation, args: Sequence[Any], interpreter: Any) -> Sequence[Any]:
    """Compute torch's relu."""
    return (torch.relu(args[0]),)


def _refused(op: Operation) -> str | None:
    return None if op.name.startswith("toy.") else "the toy machine adds, scales and rectifies"


LEVEL = Level("toy", _refused)
Toy = Dialect("toy", [AddOp, ScaleOp, ReluOp])
