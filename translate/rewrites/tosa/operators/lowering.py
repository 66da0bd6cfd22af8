"""TOSA's requirements on the tensors that an op reads and produces."""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa.codes import code_of_element
from stepwell.dialects.tosa.limits import EIGHT_K, LevelLimits
from stepwell.ir.dtypes import dtype_name
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import IntType, dims, element, is_static
from stepwell.translate.rewrites.tosa.operators.building import shape_of
from stepwell.translate.rewrites.tosa.operators.sizes import inexpressible


def is_scalar(value: SSAValue) -> bool:
    """Whether a value is a size argument, such as a view's, which the result's type also states."""
    return isinstance(value.type, IntType)


def unfit(value: SSAValue, symbols: bool = False, level: LevelLimits = EIGHT_K) -> Refusal | None:
    """Return why TOSA cannot represent a tensor, or None."""
    type_ = value.type
    if not isinstance(type_, TensorType):
        return Refusal(f"an operand or result is {type_}, a number known only at run time")
    attribute: Attribute = element(type_)
    if code_of_element(attribute) is None:
        return Refusal(f"TOSA has no element type {dtype_name(attribute)}")
    if not is_static(type_):
        if not symbols:
            return Refusal(f"the shape {list(dims(type_))} is symbolic")
        reason = inexpressible(value)
        if reason is not None:
            return Refusal(reason)
    if len(dims(type_)) > level.rank:
        return Refusal(f"rank {len(dims(type_))} is above TOSA's limit of {level.rank}")
    if 0 in dims(type_):
        return Refusal("TOSA has no empty tensors")
    return None


def reduced_axes(op: SchemaOp) -> list[int]:
    """Return the axes over which a reduction runs, in order; all axes if the op names none."""
    rank = len(shape_of(op.operands[0]))
    named = op.arg("dim") if "dim" in op.SCHEMA.by_name else None
    listed = [named] if isinstance(named, int) else list(named or range(rank))
    return sorted(axis % max(rank, 1) for axis in listed)
