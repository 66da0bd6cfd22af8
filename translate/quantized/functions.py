"""Functions of one quantized value: chains of elementwise ops between casts, and their tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.operators import OPERATORS
from stepwell.dialects.quant import DequantizeCast, QuantizeCast, StorageCast
from stepwell.dialects.quant.types import quantization
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_of
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import dims
from stepwell.translate.quantized.recognize import not_int8


def is_function(op: object) -> bool:
    """Whether an op is elementwise arithmetic, a comparison or a choice.

    Such ops form a chain if they read one value and constants of one element.
    """
    is_elementwise = isinstance(op, SchemaOp) and is_of(op, "elementwise")
    return is_elementwise and not is_of(op, "movement", "cast")


def _is_of_one(cls: type[SchemaOp]) -> bool:
    """Whether an operator, in all its overloads, is arithmetic of one tensor."""
    tensors = [argument for argument in cls.SCHEMA.arguments if argument.type.is_tensor]
    if cls.SCHEMA.overload or len(tensors) != 1 or not is_of(cls, "elementwise"):
        return False
    return not is_of(cls, "movement", "cast", "comparison", "choice")


OF_ONE = tuple(cls.SCHEMA.operator for cls in OPERATORS if _is_of_one(cls))
"""Functions of one tensor and numbers."""

MOST_OPS = 64
"""The maximum length of a chain."""


@dataclass(frozen=True)
class Chain:
    """A quantization, the quantized value from which it is computed, and the ops between, in
    order.
    """

    cast: QuantizeCast
    source: SSAValue
    ops: tuple[Operation, ...]


def byte_chain(op: QuantizeCast) -> Chain | Refusal | None:
    """Match a quantization that is an elementwise function of one int8 value."""
    result_quantization = quantization(op.result.type)
    assert result_quantization is not None
    chain = chain_of(op)
    if chain is None or dims(chain.source.type) != dims(op.result.type):
        return None
    if reason := not_int8(result_quantization):
        return Refusal(f"the result is quantized {reason}")
    source_quantization = quantization(chain.source.type)
    assert source_quantization is not None
    if reason := not_int8(source_quantization):
        return Refusal(f"the operand is quantized {reason}")
    return chain


def chain_of(cast: QuantizeCast) -> Chain | None:
    """Return the ops from a quantized value to a quantization, or None if it has two sources."""
    found = followed(cast, is_one_element)
    if found is None or len(found[1]) != 1:
        return None
    ops, sources = found
    return Chain(cast, next(iter(sources)), ops)


def followed(
    cast: QuantizeCast, is_constant: Callable[[SSAValue], bool]
) -> tuple[tuple[Operation, ...], frozenset[SSAValue]] | None:
    """Return the elementwise ops before a quantization, in order, and the quantized values they
    read.

    Returns None if there are other ops before it, or constants that `is_constant` does not accept.
    """
    order: list[Operation] = []
    sources: set[SSAValue] = set()
    seen: set[Operation] = set()

    def visit(value: SSAValue) -> bool:
        owner = value.owner
        if not isinstance(owner, Operation):
            return False
        if owner in seen:
            return True
        seen.add(owner)
        if len(seen) > MOST_OPS:
            return False
        if isinstance(owner, DequantizeCast) and not is_constant(owner.input):
            sources.add(owner.input)
        elif isinstance(owner, WeightOp):
            if not is_constant(value):
                return False
        elif isinstance(owner, DequantizeCast | StorageCast) or is_function(owner):
            if not all(isinstance(v.type, TensorType) and visit(v) for v in owner.operands):
                return False
        else:
            return False
        order.append(owner)
        return True

    return (tuple(order), frozenset(sources)) if visit(cast.input) else None


def is_stored(value: SSAValue) -> bool:
    """Whether a value is a constant, also a quantized one."""
    maker = value.owner.input.owner if isinstance(value.owner, StorageCast) else value.owner
    return isinstance(maker, WeightOp)


def is_one_element(value: SSAValue) -> bool:
    """Whether a value is a constant of one element, also a quantized one."""
    return is_stored(value) and all(size == 1 for size in dims(value.type))


def table_of(chain: Chain, program: Program) -> torch.Tensor:
    """Return int8 [256]: entry q + 128 is the quantized result for the stored value q."""
    codes = torch.arange(-128, 128, dtype=torch.int16).to(torch.int8)
    environment: dict[SSAValue, Any] = {chain.source: codes}
    interpreter = Interpreter(program.weights)
    with torch.no_grad():
        for op in (*chain.ops, chain.cast):
            interpreter.step(op, environment)
    table = environment[chain.cast.result]
    if table.numel() != 256:
        raise StepwellError(f"the function's table has shape {list(table.shape)}, not 256 entries")
    return table.reshape(256)
