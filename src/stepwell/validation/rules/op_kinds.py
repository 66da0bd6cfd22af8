"""What the prover asks of an op: whether it computes each element for itself, or moves none."""

from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant.types import quantization
from stepwell.dialects.xnnpack.movement import StaticConstantPad
from stepwell.ir.declared.families import is_of
from stepwell.ir.types import dims

_CASTS = frozenset(("quant.scast", "quant.qcast", "quant.dcast"))
_OF_TENSORS = (
    "quantized_decomposed.quantize_per_tensor.",
    "quantized_decomposed.dequantize_per_tensor.",
)
FILLS = {
    "aten.fill.Scalar": "value",
    "aten.full_like.default": "fill_value",
    "aten.full.default": "fill_value",
}
"""Ops that return one number in every element, with the name of the number."""
_AMOUNTS = {"aten.constant_pad_nd.default": "pad", "aten.roll.default": "shifts"}


def tensors_of(op: Operation) -> list[SSAValue]:
    """Return the operands of an op that are tensors."""
    return [v for v in op.operands if isinstance(v.type, TensorType)]


def is_elementwise(op: Operation) -> bool:
    """Whether an op computes each element from those at the same index of tensors of one shape."""
    if any(
        (held := quantization(v.type)) and not held.is_per_tensor
        for v in (*op.operands, *op.results)
        if isinstance(v.type, TensorType)
    ):
        return False
    is_cast = op.name in _CASTS or op.name.startswith(_OF_TENSORS)
    if not (is_of(op, "elementwise", "factory") or is_cast or op.name in FILLS):
        return False
    shape = dims(op.results[0].type)
    return all(
        dims(v.type) == shape or set(dims(v.type)) <= {1} or is_table(op, v) for v in tensors_of(op)
    )


def is_table(op: Operation, value: SSAValue) -> bool:
    """Whether an operand is a table that an elementwise op reads whole."""
    return op.name in ("tosa.table", "cmsis.quantized_activation") and value is op.operands[1]


def moves_by_nothing(op: Operation) -> bool:
    """Whether the amounts by which an op moves elements are all 0."""
    if isinstance(op, StaticConstantPad):
        return not any((*op.ints("pre_paddings"), *op.ints("post_paddings")))
    if not isinstance(op, SchemaOp) or op.name not in _AMOUNTS:
        return False
    amounts: Any = op.arg(_AMOUNTS[op.name])
    return isinstance(amounts, list) and all(each == 0 for each in amounts)  # pyright: ignore[reportUnknownVariableType]
