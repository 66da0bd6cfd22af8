"""Recognition of quantized layers, shared by all targets.

A layer is an op that is float in the program and located between casts. `Parts` states which of its
operands are activations, stored weight and bias; `Layer` states their integers. Other requirements
of kernels (zero points, signs, static shapes) are checked by the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.translate.quantized.recognize import (
    Activation,
    Bias,
    StoredWeight,
    Use,
    activation,
    bias_operand,
    quantized_uses,
    stored_weight,
)


@dataclass(frozen=True)
class Parts:
    """The roles of an op's operands.

    Attributes:
        activations: the computed operands.
        weight: the constant operand, or None.
        bias: the bias that is added to the sums, or None.
        axis: the output axis of the weight.
        bits: the bit width of the activations.
    """

    activations: Sequence[SSAValue]
    weight: SSAValue | None = None
    bias: SSAValue | None = None
    axis: int = 0
    bits: int = 8


Reads: TypeAlias = Callable[[SchemaOp], Parts | Refusal | None]


@dataclass(frozen=True)
class Layer:
    """The integers that an op between casts reads, its constants, and every use of its result."""

    op: SchemaOp
    inputs: tuple[Activation, ...]
    uses: tuple[Use, ...]
    constant: StoredWeight | None = None
    bias: Bias | None = None

    @property
    def weight(self) -> StoredWeight:
        """Return the layer's weight, which must exist."""
        assert self.constant is not None
        return self.constant


def first(count: int) -> Reads:
    """Match the first operands of an op as activations, without constants."""
    return lambda op: Parts(op.operands[:count])


def weighted(op: SchemaOp) -> Parts:
    """Match an activation, a weight and an optional bias, in the order of PyTorch's layers."""
    is_transposed = "transposed" in op.SCHEMA.by_name and op.arg("transposed")
    return Parts(op.operands[:1], op.operands[1], op.operand("bias"), int(is_transposed))


def layer_of(op: SchemaOp, parts: Parts, bits: int = 8, unsigned: bool = False) -> Layer | Refusal:
    """Return the layer, or why the op must stay a float.

    Args:
        op: the op between casts.
        parts: the roles of its operands.
        bits: the bit width of the activations.
        unsigned: whether activations may be unsigned.
    """
    inputs: list[Activation] = []
    for value in parts.activations:
        layer = activation(value, bits, unsigned)
        if isinstance(layer, Refusal):
            return layer
        inputs.append(layer)
    uses = quantized_uses(op.results[0], bits, unsigned)
    if isinstance(uses, Refusal):
        return uses
    if parts.weight is None:
        return Layer(op, tuple(inputs), uses)
    weight = stored_weight(parts.weight)
    if isinstance(weight, Refusal):
        return weight
    bias = bias_operand(parts.bias)
    if isinstance(bias, Refusal):
        return bias
    return Layer(op, tuple(inputs), uses, weight, bias)
