"""Take a scale or shift per channel into the linear layers behind what moves whole rows.

Windows of Swin are cut, and shifted, between a layer norm and the projections that read it. Views,
permutes, slices and concatenations that leave the channels last and whole move rows, and each row
is scaled and shifted alike: the constants pass through, as `FoldAffineIntoLinear` takes them where
nothing stands between. Every reader, moved or not, must end in a linear layer, or nothing is saved.

Before:
    func.func @forward(%x: tensor<2x3x4xf32>) -> tensor<3x2x5xf32> {
      %g = stepwell.weight <"g"> "parameter" : tensor<4xf32>
      %w = stepwell.weight <"w"> "parameter" : tensor<5x4xf32>
      %s = aten.mul.Tensor(%x, %g) : (tensor<2x3x4xf32>, tensor<4xf32>) -> tensor<2x3x4xf32>
      %p = aten.permute.default(%s, [1, 0, 2]) : (tensor<2x3x4xf32>) -> tensor<3x2x4xf32>
      %y = aten.linear.default(%p, %w) : (tensor<3x2x4xf32>, tensor<5x4xf32>) -> tensor<3x2x5xf32>
      func.return %y : tensor<3x2x5xf32>
    }
After:
    func.func @forward(%x: tensor<2x3x4xf32>) -> tensor<3x2x5xf32> {
      %0 = stepwell.weight <"w#scale_columns.d8f7dcdf5829"> "constant" : tensor<5x4xf32>
      %p = aten.permute.default(%x, [1, 0, 2]) : (tensor<2x3x4xf32>) -> tensor<3x2x4xf32>
      %y = aten.linear.default(%p, %0) : (tensor<3x2x4xf32>, tensor<5x4xf32>) -> tensor<3x2x5xf32>
      func.return %y : tensor<3x2x5xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes import axis_map
from stepwell.ir.core import weight_key
from stepwell.ir.numerics import REORDERED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites.aten.building import (
    constant_along_last_axis,
    constant_side,
)
from stepwell.translate.rewrites.xnnpack.fold_affine_into_linear import (
    scale_columns,
    shift_through_linear,
)

MOVEMENTS = (aten.ViewDefault, aten.PermuteDefault, aten.SliceTensor, aten.CatDefault)


@dataclass(frozen=True)
class AffineBehindLayout:
    """`source * scale + shift`, all that moves its rows, and the layers that read them.

    One of the two constants may be missing; `affine` is the op that is moved.
    """

    affine: SchemaOp
    source: SSAValue
    scale: str | None
    shift: str | None
    movements: tuple[SchemaOp, ...]
    linears: tuple[SchemaOp, ...]


@dataclass(frozen=True)
class FoldAffineThroughLayout(Rewrite[AffineBehindLayout]):
    """`linear(move(x * g))` to `linear(move(x))` with folded weights, likewise for a sum."""

    name: ClassVar[str] = "fold-affine-through-layout"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.LinearDefault,)
    bound: ClassVar[Bound] = Bound(2e-5, 1e-5, "products with the folded weight, reassociated")

    def match(self, op: SchemaOp, program: Program) -> AffineBehindLayout | Refusal | None:
        """Guards: a constant along the last axis, rows moved whole, no reader but linears."""
        value = op.operands[0]
        while moves_whole_rows(value.owner):
            value = cast(SchemaOp, value.owner).operands[0]
        source, scale, shift = constants_of(value)
        if source is value:
            return None
        moved: dict[SSAValue, None] = {value: None}
        linears: dict[SchemaOp, None] = {}
        waiting = [value]
        while waiting:
            for use in waiting.pop().uses:
                reader = use.operation
                if isinstance(reader, aten.LinearDefault) and use.index == 0:
                    linears[reader] = None
                elif not moves_whole_rows(reader):
                    return Refusal(f"{reader.name} reads the scaled value too: nothing is saved")
                elif reader.results[0] not in moved:
                    moved[reader.results[0]] = None
                    waiting.append(reader.results[0])
        del moved[value]
        movements = tuple(cast(SchemaOp, result.owner) for result in moved)
        for movement in movements:
            if any(part is not value and part not in moved for part in movement.operands):
                return Refusal("a concatenation joins scaled rows and others")
        for layer in linears:
            refusal = takes_no_constants(layer)
            if refusal is not None:
                return refusal
        affine = cast(SchemaOp, value.owner)
        return AffineBehindLayout(affine, source, scale, shift, movements, tuple(linears))

    def deviates(self, match: AffineBehindLayout, program: Program) -> Deviation | None:
        """Products and sums in another order."""
        return REORDERED

    def build(self, match: AffineBehindLayout, rw: Rewriter) -> None:
        """The movements on the source, then the layers with derived weights."""
        held: dict[SSAValue, SSAValue] = {match.affine.results[0]: match.source}
        waiting: set[Operation] = set(match.movements)
        op: Operation | None = match.affine
        while waiting:  # In the order of the block: a concatenation comes behind its parts.
            op = op.next_op
            assert op is not None, "what reads an op stands behind it"
            if op in waiting:
                waiting.remove(op)
                copied = op.clone()
                for index, part in enumerate(op.operands):
                    copied.operands[index] = held[part]
                copied.results[0].name_hint = op.results[0].name_hint
                held[op.results[0]] = rw.insert(copied, op).results[0]
                copied.location = op.location
        for layer in match.linears:
            self._fold(layer, held[layer.operands[0]], match, rw)

    def _fold(
        self, layer: SchemaOp, given: SSAValue, match: AffineBehindLayout, rw: Rewriter
    ) -> None:
        store, bias = rw.weights, layer.operand("bias")
        weight, added = weight_key(layer.operands[1]), weight_key(bias) if bias else None
        assert weight is not None
        if match.shift is not None:
            sources = [weight, match.shift, *([added] if added else [])]
            added = store.derive(shift_through_linear.__name__, sources)
        if match.scale is not None:
            weight = store.derive(scale_columns.__name__, [weight, match.scale])
        result = layer.results[0]
        new = aten.LinearDefault.make(
            given,
            rw.weight(weight),
            rw.weight(added) if added else None,
            result_types=[result.type],
        )
        rw.insert(new, layer)
        new.location = layer.location
        new.results[0].name_hint = result.name_hint
        rw.replace(layer, [new.results[0]])


def constants_of(value: SSAValue) -> tuple[SSAValue, str | None, str | None]:
    """(source, key of the scale, key of the shift) of a sum, a product, or a sum of a product."""
    shift = scale = None
    shifted = constant_side(value, aten.AddTensor, constant_along_last_axis)
    if shifted is not None:
        value, shift = shifted
    scaled = constant_side(value, aten.MulTensor, constant_along_last_axis)
    if scaled is not None and (shift is None or value.has_one_use()):
        value, scale = scaled
    return value, scale, shift


def moves_whole_rows(op: object) -> bool:
    """Whether an op moves rows along the last axis and takes none apart."""
    axes = axis_map(op) if isinstance(op, MOVEMENTS) else None
    if axes is None or not axes.shapes[0]:
        return False
    return axes.after(0, len(axes.shapes[0]) - 1) == len(axes.shape) - 1


def takes_no_constants(layer: SchemaOp) -> Refusal | None:
    """A layer's weight is a constant matrix, and its bias a constant."""
    if weight_key(layer.operands[1]) is None:
        return Refusal("the linear's weight is computed at run time")
    if len(dims(layer.operands[1].type)) != 2:
        return Refusal("the linear's weight is a vector: there is no bias to take the shift")
    bias = layer.operand("bias")
    if bias is not None and weight_key(bias) is None:
        return Refusal("the linear's bias is computed at run time")
    return None
