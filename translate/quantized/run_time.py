"""Recognize dynamically quantized values, whose range is measured at run time."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import weight_key
from stepwell.ir.types import dims


@dataclass(frozen=True)
class RunTimeQuantized:
    """A float tensor that is quantized by its own range and dequantized again.

    Attributes:
        source: the float tensor.
        scale: the value of the scale, or of one scale per token.
        by_token: whether every index before the last axis has its own scale.
    """

    source: SSAValue
    scale: SSAValue
    by_token: bool


def run_time_quantized(value: SSAValue) -> RunTimeQuantized | None:
    """Return how a value is dynamically quantized to the full int8 range, else None."""
    back = value.owner
    if not isinstance(back, SchemaOp) or back.name not in _FORMS:
        return None
    form = _FORMS[back.name]
    quantize = back.operands[0].owner
    if not isinstance(quantize, SchemaOp) or quantize.name != form.quantize:
        return None
    chosen = back.operands[1].owner
    if not isinstance(chosen, SchemaOp) or chosen.name != form.choose:
        return None
    source = quantize.operands[0]
    same = all(
        (op.operands[1], op.operands[2]) == tuple(chosen.results[:2]) and _in_int8(op)
        for op in (quantize, back)
    )
    if not same or chosen.operands[0] is not source or weight_key(source):
        return None
    if form.is_affine and not all(_is_by_token(op, source) for op in (chosen, quantize, back)):
        return None
    if "quant_min" in chosen.SCHEMA.by_name and not _in_int8(chosen):
        return None
    if form.is_affine and chosen.arg("mapping_type") != "ASYMMETRIC":
        return None
    return RunTimeQuantized(source, back.operands[1], form.by_token)


def _in_int8(op: SchemaOp) -> bool:
    return (op.arg("quant_min"), op.arg("quant_max")) == (-128, 127)


def _is_by_token(op: SchemaOp, source: SSAValue) -> bool:
    """Whether torchao's block is a whole last axis, one for every index of the other axes."""
    *leading, last = op.arg("block_size")
    return last == dims(source.type)[-1] and all(size == 1 for size in leading)


@dataclass(frozen=True)
class _Form:
    quantize: str
    choose: str
    by_token: bool
    is_affine: bool = False


_LIBRARY = "quantized_decomposed."
_FORMS = {
    f"{_LIBRARY}dequantize_per_tensor.tensor": _Form(
        f"{_LIBRARY}quantize_per_tensor.tensor", f"{_LIBRARY}choose_qparams.tensor", False
    ),
    f"{_LIBRARY}dequantize_per_token.default": _Form(
        f"{_LIBRARY}quantize_per_token.default",
        f"{_LIBRARY}choose_qparams_per_token_asymmetric.default",
        True,
    ),
    "torchao.dequantize_affine.default": _Form(
        "torchao.quantize_affine.default", "torchao.choose_qparams_affine.default", True, True
    ),
}
"""Dequantizing op → its kind: PT2E's, ExecuTorch's per token, torchao's per token."""
