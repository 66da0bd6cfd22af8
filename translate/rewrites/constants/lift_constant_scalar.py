"""Lift the number of a scalar multiplication, addition, … into a constant tensor.

XNNPACK has no scalar operands: `aten.mul.Scalar` stays outside every delegate and splits it in
two. With the number as a constant tensor the op is an ordinary multiply. The constant is an entry
of the weight store, shared by equal numbers, and never computed at run time by `aten.full`.

Multipliers that scale an attention are left for the attention recogniser if the pipeline has one
(`protect_attention`): it needs their value. In doubt a multiplier counts as such a scale.

Before:
    %y = aten.mul.Scalar(%x, 0.5) : (tensor<2x3xf32>) -> tensor<2x3xf32>
After:
    %y = aten.mul.Tensor(%x, dense<0.5>) : (tensor<2x3xf32>, tensor<1xf32>) -> tensor<2x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import dtype_name, i1, is_float, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.attention.attention_pattern import scales_attention
from stepwell.translate.rewrites.building import overflows

Number = int | float | bool


@dataclass(frozen=True)
class LiftedScalar:
    """`tensor_form(x, constant)`, or the operands the other way round (`reversed`)."""

    op: SchemaOp
    tensor_form: type[SchemaOp]
    operand: SSAValue
    number: Number
    reversed: bool


@dataclass(frozen=True)
class LiftConstantScalar(Rewrite[LiftedScalar]):
    """`aten.{mul,add,sub,div,rsub}.Scalar` to the tensor form with a constant of one element."""

    protect_attention: bool = True
    name: ClassVar[str] = "lift-constant-scalar"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.MulScalar,
        aten.AddScalar,
        aten.SubScalar,
        aten.DivScalar,
        aten.RsubScalar,
    )

    def match(self, op: SchemaOp, program: Program) -> LiftedScalar | Refusal | None:
        """Guards in order: constant, one result dtype, exact in that dtype, no attention scale."""
        number = op.arg("other")
        if isinstance(number, SSAValue):
            return Refusal("the scalar is known only at run time")
        for guard in (is_complex, scaled_by_alpha, promotes, rounds):
            refusal = guard(op)
            if refusal is not None:
                return refusal
        is_scale = self.protect_attention and isinstance(op, aten.MulScalar | aten.DivScalar)
        if is_scale and scales_attention(op):
            return Refusal("it scales an attention: recognise-attention takes the scale")
        return LiftedScalar(
            op, _TENSOR_FORM[type(op)], op.operands[0], number, isinstance(op, aten.RsubScalar)
        )

    def build(self, match: LiftedScalar, rw: Rewriter) -> None:
        """Insert the constant once and the tensor form in the op's place."""
        held = match.operand.type
        rank = 1 if dims(held) else 0
        key = rw.weights.number(match.number, torch_dtype(element(held)), rank)
        constant = rw.weight(key)
        operands = (constant, match.operand) if match.reversed else (match.operand, constant)
        new = match.tensor_form.make(*operands, result_types=[match.op.results[0].type])
        rw.insert(new)
        rw.replace(match.op, new.results)


_TENSOR_FORM: dict[type[Operation], type[SchemaOp]] = {
    aten.MulScalar: aten.MulTensor,
    aten.AddScalar: aten.AddTensor,
    aten.SubScalar: aten.SubTensor,
    aten.DivScalar: aten.DivTensor,
    aten.RsubScalar: aten.SubTensor,
}


def is_complex(op: SchemaOp) -> Refusal | None:
    """Neither the tensor nor the number is complex."""
    if torch_dtype(element(op.results[0].type)).is_complex:
        return Refusal("complex numbers stay with their scalar")
    return None


def scaled_by_alpha(op: SchemaOp) -> Refusal | None:
    """`alpha` is 1: otherwise the op multiplies too."""
    if "alpha" in op.SCHEMA.by_name and op.arg("alpha") != 1:
        return Refusal(f"alpha is {op.arg('alpha')}, which multiplies too")
    return None


def promotes(op: SchemaOp) -> Refusal | None:
    """The result keeps the tensor's dtype: a float scalar promotes an integer tensor."""
    given, result = element(op.operands[0].type), element(op.results[0].type)
    if given != result:
        return Refusal(
            f"the scalar promotes {dtype_name(given)} to {dtype_name(result)}; cast the tensor first"
        )
    if given == i1:
        return Refusal("bool tensors have no arithmetic")
    return None


def rounds(op: SchemaOp) -> Refusal | None:
    """The number keeps its value in the tensor's dtype.

    torch computes half-precision ops with the scalar in f32; a constant tensor would be rounded
    first. f32 tensors take the scalar rounded to f32, which is what the constant holds.
    """
    held = element(op.operands[0].type)
    dtype, number = torch_dtype(held), op.arg("other")
    if is_float(held) and (refusal := overflows(number, held)):
        return refusal
    if dtype in (torch.float32, torch.float64):
        return None
    if dtype.is_floating_point:
        if torch.tensor(number, dtype=dtype).item() != torch.tensor(number).float().item():
            return Refusal(
                f"{number!r} is not exact in {dtype_name(held)}, torch multiplies in float32"
            )
        return None
    bounds = torch.iinfo(dtype)
    if not bounds.min <= number <= bounds.max:
        return Refusal(f"{number!r} does not fit {dtype_name(held)}")
    return None
