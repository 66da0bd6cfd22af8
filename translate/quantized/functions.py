"""Functions of one quantized value: chains of elementwise ops between casts, and their tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.quant import DequantizeCast, QuantizeCast, StorageCast
from stepwell.dialects.quant.types import quantization
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import dims
from stepwell.translate.quantized.recognize import not_int8

OF_ONE = (
    "relu",
    "relu6",
    "hardtanh",
    "hardsigmoid",
    "hardswish",
    "leaky_relu",
    "elu",
    "celu",
    "selu",
    "gelu",
    "silu",
    "mish",
    "sigmoid",
    "log_sigmoid",
    "tanh",
    "softplus",
    "exp",
    "expm1",
    "exp2",
    "log",
    "log1p",
    "log2",
    "log10",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "square",
    "abs",
    "neg",
    "sign",
    "sin",
    "cos",
    "tan",
    "atan",
    "sinh",
    "cosh",
    "erf",
    "floor",
    "ceil",
    "round",
    "trunc",
    "clamp",
    "clamp_min",
    "clamp_max",
    "threshold",
    "hardshrink",
    "softshrink",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atanh",
    "erfc",
    "erfinv",
    "frac",
    "logit",
    "sinc",
    "lgamma",
)
"""Functions of one tensor and numbers."""
_OTHERS = (
    "aten.pow.Tensor_Scalar",
    "aten.add.Scalar",
    "aten.sub.Scalar",
    "aten.mul.Scalar",
    "aten.div.Scalar",
    "aten.rsub.Scalar",
    "aten.add.Tensor",
    "aten.sub.Tensor",
    "aten.mul.Tensor",
    "aten.div.Tensor",
    "aten.minimum.default",
    "aten.maximum.default",
    "aten.pow.Tensor_Tensor",
    "aten.pow.Scalar",
    "aten.remainder.Scalar",
    "aten.remainder.Tensor",
    "aten.fmod.Scalar",
    "aten.fmod.Tensor",
    "aten.div.Tensor_mode",
    "aten.div.Scalar_mode",
    "aten.floor_divide.default",
    "aten.floor_divide.Scalar",
    "aten.where.self",
    "aten.where.ScalarOther",
    "aten.nan_to_num.default",
    *(
        f"aten.{word}.{kind}"
        for word in "eq ne lt le gt ge".split()
        for kind in ("Tensor", "Scalar")
    ),
)
FUNCTIONS: tuple[type[SchemaOp], ...] = tuple(
    op_class(name) for name in (*(f"aten.{name}.default" for name in OF_ONE), *_OTHERS)
)
"""Elementwise ops: one or several, of one value and constants of one element, form a chain."""

MOST_OPS = 64
"""The maximum length of a chain."""


@dataclass(frozen=True)
class Chain:
    """A quantization, the value of which it is a function, and the ops between, in order."""

    cast: QuantizeCast
    source: SSAValue
    ops: tuple[Operation, ...]


def byte_chain(op: QuantizeCast) -> Chain | Refusal | None:
    """Match a quantization that is a function of one int8 value of the same shape."""
    result_quantization = quantization(op.result.type)
    assert result_quantization is not None
    chain = chain_of(op)
    if chain is None or dims(chain.source.type) != dims(op.result.type):
        return None
    if reason := not_int8(result_quantization):
        return Refusal(f"its result is quantized {reason}")
    source_quantization = quantization(chain.source.type)
    assert source_quantization is not None
    if reason := not_int8(source_quantization):
        return Refusal(f"its operand is quantized {reason}")
    return chain


def chain_of(cast: QuantizeCast) -> Chain | None:
    """Return the ops from a quantized value to a quantization, or None for two sources."""
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
        elif isinstance(owner, (*FUNCTIONS, DequantizeCast, StorageCast)):
            if not all(isinstance(v.type, TensorType) and visit(v) for v in owner.operands):
                return False
        else:
            return False
        order.append(owner)
        return True

    return (tuple(order), frozenset(sources)) if visit(cast.input) else None


def is_stored(value: SSAValue) -> bool:
    """Whether a value is a constant, real or quantized."""
    maker = value.owner.input.owner if isinstance(value.owner, StorageCast) else value.owner
    return isinstance(maker, WeightOp)


def is_one_element(value: SSAValue) -> bool:
    """Whether a value is a constant of one element, real or quantized."""
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
        raise StepwellError(f"a table came out with shape {list(table.shape)}, not 256 entries")
    return table.reshape(256)
