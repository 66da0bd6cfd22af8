"""Fusion: fold the scale and shift of each channel before a layer into its weight and bias.

    linear(x * g + b, W, c) = linear(x, W·diag(g), W·b + c)
    convolution(x * g + b, W, c) = convolution(x, W·g, c + Σ W·b)

Norms end in such a pair, and a target would read g and b as constants that it does not copy. Ops
that move whole channels may be in between: views, permutes, slices and concatenations cut the
windows of Swin, and each row is scaled and shifted equally. A factor keeps the zeros of a padded
convolution; a shift does not, and is folded only where nothing is padded. Every reader, moved or
not, must end in such a layer; otherwise nothing is saved. A table that an embedding also reads is
not folded, because it is most of the bytes of a language model.

Before:
    %g = stepwell.weight <"g"> "parameter" : tensor<4xf32>
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>
    %s = aten.mul.Tensor(%x, %g) : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
    %y = aten.linear.default(%s, %w) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
After:
    %0 = stepwell.weight <"w#scale_columns.d8f7dcdf5829"> "constant" : tensor<3x4xf32>
    %y = aten.linear.default(%x, %0) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>

Before:
    %g = stepwell.weight <"g"> "parameter" : tensor<4xf32>
    %w = stepwell.weight <"w"> "parameter" : tensor<5x4xf32>
    %s = aten.mul.Tensor(%x, %g) : (tensor<2x3x4xf32>, tensor<4xf32>) -> tensor<2x3x4xf32>
    %p = aten.permute.default(%s, [1, 0, 2]) : (tensor<2x3x4xf32>) -> tensor<3x2x4xf32>
    %y = aten.linear.default(%p, %w) : (tensor<3x2x4xf32>, tensor<5x4xf32>) -> tensor<3x2x5xf32>
After:
    %0 = stepwell.weight <"w#scale_columns.d8f7dcdf5829"> "constant" : tensor<5x4xf32>
    %p = aten.permute.default(%x, [1, 0, 2]) : (tensor<2x3x4xf32>) -> tensor<3x2x4xf32>
    %y = aten.linear.default(%p, %0) : (tensor<3x2x4xf32>, tensor<5x4xf32>) -> tensor<3x2x5xf32>

Before:
    %g = stepwell.weight <"g"> "parameter" : tensor<3x1x1xf32>
    %b = stepwell.weight <"b"> "parameter" : tensor<3x1x1xf32>
    %w = stepwell.weight <"w"> "parameter" : tensor<4x3x1x1xf32>
    %s = aten.mul.Tensor(%x, %g) : (tensor<1x3x5x5xf32>, tensor<3x1x1xf32>) -> tensor<1x3x5x5xf32>
    %a = aten.add.Tensor(%s, %b) : (tensor<1x3x5x5xf32>, tensor<3x1x1xf32>) -> tensor<1x3x5x5xf32>
    %y = aten.convolution.default(%a, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x5x5xf32>, tensor<4x3x1x1xf32>) -> tensor<1x4x5x5xf32>
After:
    %0 = stepwell.weight <"w#scale_input_channels.c7a8571f8423"> "constant" : tensor<4x3x1x1xf32>
    %1 = stepwell.weight <"w#shift_through_convolution.e4d522b6830a"> "constant" : tensor<4xf32>
    %y = aten.convolution.default(%x, %0, %1, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x5x5xf32>, tensor<4x3x1x1xf32>, tensor<4xf32>) -> tensor<1x4x5x5xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import REORDERED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter
from stepwell.translate.scale_folding.constants import (
    channels_before,
    channels_behind,
    constants_of,
)
from stepwell.translate.scale_folding.layers import LAYERS, Layers, layer_of, with_weights


@dataclass(frozen=True)
class AffineInFront:
    """`source * scale + shift`, the ops that move its channels, and the layers that read the
    result.

    One of the two constants may be missing; `affine` is the op that is moved.
    """

    affine: SchemaOp
    source: SSAValue
    scale: str | None
    shift: str | None
    movements: tuple[SchemaOp, ...]
    layers: tuple[SchemaOp, ...]


@dataclass(frozen=True)
class FoldAffineIntoLayer(Rewrite[AffineInFront]):
    """Replace `layer(move(x * g + b))` by `layer(move(x))` with folded weights."""

    name: ClassVar[str] = "fold-affine-into-layer"
    LAYERS: ClassVar[Layers] = LAYERS
    anchors: ClassVar[tuple[type[Operation], ...]] = tuple(LAYERS)
    bound: ClassVar[Bound] = roundings("products with the folded weight, reassociated")
    deviation: ClassVar[Deviation | None] = REORDERED

    def match(self, op: SchemaOp, program: Program) -> AffineInFront | Refusal | None:
        """Match a constant along channels that are moved as a whole and read by layers only."""
        value, axis = op.operands[0], self.LAYERS[type(op)].channels_read(op)
        while (moved := channels_before(value.owner, axis)) is not None:
            value, axis = moved
        source, scale, shift = constants_of(value, axis)
        if source is value:
            return None
        axes: dict[SSAValue, int] = {value: axis}
        layers: dict[SchemaOp, None] = {}
        waiting = [value]
        while waiting:
            read = waiting.pop()
            for use in read.uses:
                reader = use.operation
                if self._reads_channels(reader, use.index, axes[read]):
                    layers[cast(SchemaOp, reader)] = None
                    continue
                at = channels_behind(reader, use.index, axes[read])
                if at is None:
                    return Refusal(f"{reader.name} reads the scaled value too: nothing is saved")
                if reader.results[0] not in axes:
                    axes[reader.results[0]] = at
                    waiting.append(reader.results[0])
        movements = tuple(cast(SchemaOp, result.owner) for result in axes if result is not value)
        for movement in movements:
            if any(part not in axes for part in movement.operands):
                return Refusal("a concatenation joins scaled rows and other rows")
        for layer in layers:
            refusal = self.LAYERS[type(layer)].refuses_input(layer, shift is not None)
            if refusal is not None:
                return refusal
            if scale is not None and _is_looked_up(layer.operands[1]):
                return Refusal(
                    "an embedding reads the layer's weight too: the weight would be kept twice"
                )
        affine = cast(SchemaOp, value.owner)
        return AffineInFront(affine, source, scale, shift, movements, tuple(layers))

    def _reads_channels(self, op: Operation, index: int, axis: int) -> bool:
        layer = layer_of(op, self.LAYERS)
        return layer is not None and index == 0 and layer[1].channels_read(layer[0]) == axis

    def build(self, match: AffineInFront, rw: Rewriter) -> None:
        """Move the ops to the source, then build the layers with derived weights."""
        values: dict[SSAValue, SSAValue] = {match.affine.results[0]: match.source}
        waiting: set[Operation] = set(match.movements)
        op: Operation | None = match.affine
        while waiting:  # In the order of the block: a concatenation follows its parts.
            op = op.next_op
            assert op is not None, "the users of an op follow it"
            if op in waiting:
                waiting.remove(op)
                copied = op.clone()
                for index, part in enumerate(op.operands):
                    copied.operands[index] = values[part]
                copied.results[0].name_hint = op.results[0].name_hint
                values[op.results[0]] = rw.insert(copied, op).results[0]
                copied.location = op.location
        for layer in match.layers:
            kind, store = self.LAYERS[type(layer)], rw.weights
            bias = None if match.shift is None else kind.shifted(store, layer, match.shift)
            weight = None if match.scale is None else kind.scaled(store, layer, match.scale)
            new = with_weights(rw, layer, values[layer.operands[0]], weight, bias)
            rw.insert(new, layer)
            new.location = layer.location
            rw.replace(layer, [new.results[0]])


def _is_looked_up(weight: SSAValue) -> bool:
    """Whether a constant is the table of an embedding."""
    return any(isinstance(use.operation, aten.EmbeddingDefault) for use in weight.uses)
