"""Layers that absorb per-channel constants into their weights, and their conditions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.maps import axis_map
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import is_float
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import dims, element
from stepwell.ir.weights import WeightStore
from stepwell.translate.scale_folding.recipes import (
    scale_columns,
    scale_input_channels,
    shift_through_convolution,
    shift_through_linear,
)


class Layer(ABC):
    """A kind of op with the operands input, weight `[out, …]` and optionally bias `[out]`."""

    WORD: ClassVar[str]
    """Its name in refusals."""

    @abstractmethod
    def channels_read(self, op: SchemaOp) -> int:
        """Return the channel axis of the layer's input."""

    @abstractmethod
    def channels_made(self, op: SchemaOp) -> int | None:
        """Return the channel axis of the layer's result, if it has float output features."""

    @abstractmethod
    def refuses_input(self, op: SchemaOp, shifted: bool) -> Refusal | None:
        """Return why weights cannot absorb a scale, or also a shift, of each input channel."""

    def refuses_output(self, op: SchemaOp) -> Refusal | None:
        """Return why weights cannot absorb constants that follow the op."""
        return None

    @abstractmethod
    def scaled(self, store: WeightStore, op: SchemaOp, scale: str) -> str:
        """Return the key of the weight with each input channel multiplied by its factor."""

    @abstractmethod
    def shifted(self, store: WeightStore, op: SchemaOp, shift: str) -> str:
        """Return the key of the bias plus the effect of a shift of each input channel."""

    def runs_on(self, op: SchemaOp, *, bias: bool, weight: bool = True) -> Refusal | None:
        """Return a refusal if the weight, or an existing bias, is computed at run time."""
        if weight and weight_key(op.operands[1]) is None:
            return Refusal(f"the {self.WORD}'s weight is computed at run time")
        operand = op.operand("bias")
        if bias and operand is not None and weight_key(operand) is None:
            return Refusal(f"the {self.WORD}'s bias is computed at run time")
        return None


class Linear(Layer):
    """`aten.linear`: channels are the last axis."""

    WORD: ClassVar[str] = "linear"

    def channels_read(self, op: SchemaOp) -> int:
        return len(dims(op.operands[0].type)) - 1

    def channels_made(self, op: SchemaOp) -> int | None:
        result_type = op.results[0].type
        has_features = len(dims(op.operands[1].type)) == 2 and is_float(element(result_type))
        return len(dims(result_type)) - 1 if has_features else None

    def refuses_input(self, op: SchemaOp, shifted: bool) -> Refusal | None:
        if weight_key(op.operands[1]) is not None and len(dims(op.operands[1].type)) != 2:
            return Refusal("the linear's weight is a vector: there is no bias to absorb the shift")
        return self.runs_on(op, bias=shifted)

    def scaled(self, store: WeightStore, op: SchemaOp, scale: str) -> str:
        return store.derive(scale_columns.__name__, [key_of(op, "weight"), scale])

    def shifted(self, store: WeightStore, op: SchemaOp, shift: str) -> str:
        return store.derive(
            shift_through_linear.__name__, [key_of(op, "weight"), shift, *bias_of(op)]
        )


class Convolution(Layer):
    """`aten.convolution` of a batch, not transposed: channels are axis 1."""

    WORD: ClassVar[str] = "convolution"

    def channels_read(self, op: SchemaOp) -> int:
        return len(dims(op.operands[0].type)) - len(dims(op.operands[1].type)) + 1

    def channels_made(self, op: SchemaOp) -> int | None:
        return self.channels_read(op) if is_float(element(op.results[0].type)) else None

    def refuses_input(self, op: SchemaOp, shifted: bool) -> Refusal | None:
        if op.arg("transposed"):
            return Refusal("the convolution is transposed: fewer inputs are summed at the borders")
        if shifted and any(op.arg("padding")):
            return self.runs_on(op, bias=False) or Refusal(
                "the convolution pads with zeros, which the shift would change"
            )
        return self.runs_on(op, bias=shifted)

    def refuses_output(self, op: SchemaOp) -> Refusal | None:
        return Refusal("the convolution is transposed") if op.arg("transposed") else None

    def scaled(self, store: WeightStore, op: SchemaOp, scale: str) -> str:
        sources = [key_of(op, "weight"), scale]
        return store.derive(scale_input_channels.__name__, sources, groups=op.arg("groups"))

    def shifted(self, store: WeightStore, op: SchemaOp, shift: str) -> str:
        sources = [key_of(op, "weight"), shift, *bias_of(op)]
        return store.derive(shift_through_convolution.__name__, sources, groups=op.arg("groups"))


Layers = Mapping[type[Operation], Layer]
LAYERS: Layers = {aten.LinearDefault: Linear(), aten.ConvolutionDefault: Convolution()}


def layer_of(op: Operation | Block, layers: Layers = LAYERS) -> tuple[SchemaOp, Layer] | None:
    """Return an op and its kind of layer."""
    layer = layers.get(type(op)) if isinstance(op, SchemaOp) else None
    return None if layer is None or not isinstance(op, SchemaOp) else (op, layer)


def key_of(op: SchemaOp, name: str) -> str:
    """Return the weight store's key for an operand, which must be a weight."""
    value = op.operand(name)
    key = None if value is None else weight_key(value)
    assert key is not None, f"{op.name}: {name} is no constant"
    return key


def bias_of(op: SchemaOp) -> list[str]:
    """Return a list with the key of a layer's constant bias, which is empty without a bias."""
    return [] if op.operand("bias") is None else [key_of(op, "bias")]


def with_weights(
    rw: Rewriter, op: SchemaOp, value: SSAValue, weight: str | None, bias: str | None
) -> SchemaOp:
    """Return a copy of the layer, not inserted, with another input and optionally other weights."""
    arguments = {**op.present(), "input": value}
    for name, key in (("weight", weight), ("bias", bias)):
        if key is not None:
            arguments[name] = rw.weight(key)
    new = type(op).from_arguments(arguments, [op.results[0].type])
    new.results[0].name_hint = op.results[0].name_hint
    return new


FAR = 64
"""The most values that are visited."""


def are_from_weights(value: SSAValue, axes: Iterable[int]) -> bool:
    """Whether some axis is an axis of a layer's output features, or of a sum with them.

    A norm's operand may be constant along an axis of inputs (padding, a plane of one color), but
    not across the outputs of a layer, each of which has different weights.
    """
    waiting, seen = [(value, axis) for axis in axes], set[tuple[SSAValue, int]]()
    while waiting and len(seen) < FAR:
        value, axis = place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        owner = value.owner
        if not isinstance(owner, Operation):
            continue
        layer = layer_of(owner)
        if layer is not None and layer[1].channels_made(layer[0]) == axis:
            return True
        known = axis_map(owner)
        if known is None:
            continue
        for index, operand in enumerate(owner.operands):
            if isinstance(operand.type, TensorType):
                before = known.before(index, axis)
                waiting += [] if before is None else [(operand, before)]
    return False
