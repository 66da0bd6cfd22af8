"""One grammar of quantized layers, whichever target reads them.

A layer is an op that is float in the program and stands between casts: what of it is an activation,
a stored weight and a bias (`Parts`), and what integers those are (`Layer`). What a target's kernels
ask beyond that (zero points, signs, static shapes) stands with the target.
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
    """What of an op is what.

    Attributes:
        activations: the operands that are computed.
        weight: the operand that is constant; None where it has none.
        bias: what is added to its sums.
        axis: the axis of the weight along which the outputs lie.
        bits: those of its activations.
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
        """The constant of a layer that has one."""
        assert self.constant is not None
        return self.constant


def first(count: int) -> Reads:
    """The first operands of an op, which has no constants."""
    return lambda op: Parts(op.operands[:count])


def weighted(op: SchemaOp) -> Parts:
    """An activation, a weight and perhaps a bias, as torch's layers have them."""
    is_transposed = "transposed" in op.SCHEMA.by_name and op.arg("transposed")
    return Parts(op.operands[:1], op.operands[1], op.operand("bias"), int(is_transposed))


def layer_of(op: SchemaOp, parts: Parts, bits: int = 8, unsigned: bool = False) -> Layer | Refusal:
    """The layer, or why it must stay a float.

    Args:
        op: what stands between casts.
        parts: what of it is what.
        bits: those of its activations.
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
