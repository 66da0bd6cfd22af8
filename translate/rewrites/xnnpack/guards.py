"""What every rewrite into the xnnpack dialect must know of its operands."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import dtype_name, f16, f32
from stepwell.ir.rewriting import Refusal
from stepwell.ir.types import dims, element

MAX_RANK = 6
FLOATS = (f32, f16)


def not_for_xnnpack(op: SchemaOp) -> Refusal | None:
    """All tensors are f32, or all are f16; ranks are at most 6 and no dimension is empty."""
    return not_floats((*op.operands, *op.results))


def not_floats(values: Iterable[SSAValue]) -> Refusal | None:
    """All values are tensors of one of XNNPACK's float types that it can hold."""
    seen = None
    for value in values:
        if not isinstance(value.type, TensorType):
            return Refusal("an operand is a number known only at run time")
        held = element(value.type)
        if held not in FLOATS:
            return Refusal(f"XNNPACK computes in float32 or float16, not {dtype_name(held)}")
        if seen is not None and held != seen:
            return Refusal(
                f"operands are {dtype_name(seen)} and {dtype_name(held)}; cast one of them"
            )
        seen = held
        refusal = not_held(value)
        if refusal is not None:
            return refusal
    return None


def not_held(value: SSAValue) -> Refusal | None:
    """Rank at most 6, no empty dimension, every dimension known as a number or expression."""
    shape = dims(value.type)
    if len(shape) > MAX_RANK:
        return Refusal(f"rank {len(shape)} is above XNNPACK's limit of {MAX_RANK}")
    if 0 in shape:
        return Refusal("a dimension is 0, which XNNPACK cannot hold")
    if "?" in shape:
        return Refusal("a dimension is not known, not even as an expression")
    return None


def not_static(value: SSAValue) -> Refusal | None:
    """Every dimension is a number."""
    symbolic = [d for d in dims(value.type) if isinstance(d, str)]
    return Refusal(f"dimension {symbolic[0]} is symbolic") if symbolic else None


def not_constant(value: SSAValue | None, what: str) -> Refusal | None:
    """The operand is a weight (or absent)."""
    if value is None or weight_key(value) is not None:
        return None
    return Refusal(f"the {what} is computed at run time; XNNPACK packs constant ones only")
