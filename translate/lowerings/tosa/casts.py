"""Lowerings of conversions between element types to CAST, with PyTorch's rounding.

TOSA rounds a float to the nearest integer where PyTorch truncates it, and has no cast between
booleans and floats.
"""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Attribute

from stepwell.ir.dtypes import dtype_name, f8E4M3FN, f8E5M2, f32, i1, i32, i64
from stepwell.ir.rewriting.rewrite import EXACT
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.values import Value, clamp
from stepwell.translate.rewrites.tosa.operators.building import FLOATS

CASTS = (
    "aten.to.dtype",
    "aten.to.dtype_layout",
    "aten.to.device",
    "aten.to.other",
    "aten._to_copy.default",
    "aten.type_as.default",
    "dim_order_ops._to_dim_order_copy.default",
)


BYTES = (f8E4M3FN, f8E5M2)
"""Floats of eight bits: each is exact in a wider type."""
MOST = 448.0
"""The largest f8E4M3FN, at which PyTorch saturates; TOSA overflows to NaN."""


@lowers(*CASTS, to="tosa", bound=EXACT, sample=("4xi1", f32))
def cast(x: Value, *, out: Out) -> Value:
    """Lower `to.dtype` and similar ops to CAST, SELECT or comparisons."""
    for dtype in (x.dtype, out.dtype):
        is_known(dtype)
    if x.dtype == out.dtype:
        return x
    if (x.dtype in BYTES and out.dtype not in FLOATS) or (out.dtype in BYTES and not x.is_float):
        x = x.to(f32)
    if out.dtype in BYTES:
        return (clamp(x, -MOST, MOST) if out.dtype == f8E4M3FN else x).cast(out.dtype)
    if out.dtype == i1 and not compares(x.dtype):
        refuse(f"TOSA cannot compare {dtype_name(x.dtype)} with 0, which a cast to bool needs")
    return x.to(out.dtype)


def is_convertible(dtype: Attribute) -> None:
    """Refuse types other than the floats, booleans and signed integers that TOSA computes with."""
    if dtype in BYTES:
        refuse(f"TOSA does not compute with {dtype_name(dtype)}")
    is_known(dtype)


def is_known(dtype: Attribute) -> None:
    """Refuse types that no cast of TOSA reads or returns."""
    signed = isinstance(dtype, IntegerType) and dtype.signedness.data.name == "SIGNLESS"
    if dtype not in (*FLOATS, *BYTES) and not signed:
        refuse(f"TOSA has no cast from or to {dtype_name(dtype)}")


def compares(dtype: Attribute) -> bool:
    """Whether TOSA can compare tensors of an element type."""
    return dtype in (i1, i32, i64, *FLOATS)


RULES = lowerings_of(__name__)
