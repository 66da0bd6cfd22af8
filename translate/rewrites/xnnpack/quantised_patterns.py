"""What stands around a quantised op: a clamp before its quantisation, scales found at run time."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.translate.rewrites.xnnpack.lower_clamp import LowerClamp, Range
from stepwell.translate.rewrites.xnnpack.quantised import is_read_once

_CHOOSE = "quantized_decomposed.choose_qparams.tensor"
_QUANTIZE = "quantized_decomposed.quantize_per_tensor.tensor"
_DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.tensor"
_INT8 = (-128, 127)


@dataclass(frozen=True)
class Clamped:
    """A value that is clamped before anything else reads it; None is unbounded."""

    value: SSAValue
    low: float | None = None
    high: float | None = None


def clamped(value: SSAValue, program: Program) -> Clamped | Refusal:
    """What a quantised value is made from, seen through a clamp; nobody else may read either."""
    if not is_read_once(value):
        return Refusal("the value is read as floats too, or quantised in several ways")
    op = value.owner
    if not isinstance(op, LowerClamp.anchors):
        return Clamped(value)
    assert isinstance(op, SchemaOp)
    found = LowerClamp().match(op, program)
    if not isinstance(found, Range) or not is_read_once(op.operands[0]):
        return Clamped(value)
    return Clamped(op.operands[0], found.low, found.high)


def dynamic_source(value: SSAValue) -> SSAValue | None:
    """The float tensor that is quantised by its own range and dequantised again, else None."""
    back = value.owner
    if not isinstance(back, SchemaOp) or back.name != _DEQUANTIZE:
        return None
    quantise = back.operands[0].owner
    if not isinstance(quantise, SchemaOp) or quantise.name != _QUANTIZE:
        return None
    chosen = back.operands[1].owner
    if not isinstance(chosen, SchemaOp) or chosen.name != _CHOOSE:
        return None
    same = all(
        op.operands[1] is chosen.results[0]
        and op.operands[2] is chosen.results[1]
        and (op.arg("quant_min"), op.arg("quant_max")) == _INT8
        for op in (quantise, back)
    )
    is_whole = (chosen.arg("quant_min"), chosen.arg("quant_max")) == _INT8
    source = quantise.operands[0]
    if not same or not is_whole or chosen.operands[0] is not source or weight_key(source):
        return None
    return source


def dynamic_scale(value: SSAValue) -> SSAValue:
    """The scale of a tensor that has a `dynamic_source`."""
    return value.owner.operands[1]  # pyright: ignore[reportAttributeAccessIssue]
