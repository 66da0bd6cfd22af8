"""The cmsis level: operators of ExecuTorch's `cortex_m` library, and ATen ops on floats."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.cmsis.ops import CmsisOp
from stepwell.dialects.quant import DequantizeCast, QuantizeCast, StorageCast
from stepwell.dialects.quant.types import quantization
from stepwell.ir.core import MutateInputOp, UpdateOp
from stepwell.ir.declared.families import is_of
from stepwell.ir.levels import Level, register_level

EXTREMES = ("aten.amax.default", "aten.amin.default")
COMPARING = (
    "aten.argmax.default",
    "aten.argmin.default",
    *(
        f"aten.{word}.{kind}"
        for word in "eq ne lt le gt ge".split()
        for kind in ("Scalar", "Tensor")
    ),
)
"""Comparisons with the same result on stored integers of one quantization, which preserve the order
of the reals.
"""
_BOUNDARY = ("quantized_decomposed.", "torchao.", "ethosu.")


def _refuses(op: Operation) -> str | None:
    if isinstance(op, StorageCast):
        names = (user.name for user in misusers(op))
        return next(
            (f"{x} reads its stored integers as if they were real values" for x in names), None
        )
    if isinstance(op, CmsisOp):
        return None
    if isinstance(op, QuantizeCast | DequantizeCast):
        return "the casts between float and int8 are cmsis ops at this level"
    if isinstance(op, SchemaOp):
        for value in op.operands:
            if isinstance(value.type, TensorType) and quantization(value.type) is not None:
                return f"it computes with reals, but its operand is {value.type}"
        return None
    if op.name.startswith(("sym.", "control.")):
        return None  # A dynamic number that is an operand of an ATen op, or control flow.
    return "it is neither an op of the cmsis level nor an ATen op"


def misusers(op: StorageCast) -> Iterator[Operation]:
    """Yield the ops that use the stored integers of a quantized value as if they were
    real values.
    """
    if quantization(op.input.type) is None:
        return
    pending: list[SSAValue] = [op.result]
    seen: set[Operation] = set()
    while pending:
        for use in pending.pop().uses:
            user = use.operation
            if user in seen or isinstance(user, ReturnOp | UpdateOp | MutateInputOp | StorageCast):
                continue
            seen.add(user)
            if is_of(user, "movement", "lookup", "choice") or user.name in EXTREMES:
                pending.extend(user.results)
            elif user.name not in COMPARING and not user.name.startswith(_BOUNDARY):
                yield user


CMSIS_LEVEL = register_level(Level("cmsis", _refuses))
