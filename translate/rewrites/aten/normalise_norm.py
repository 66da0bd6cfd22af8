"""Spell layer, group and instance norms by the operator a model writes, with one result.

`native_layer_norm` and `native_group_norm` also give mean and reciprocal deviation, which only
training reads. An instance norm over its own statistics is a group norm with one channel a group.

Before:
    func.func @forward(%x: tensor<2x4x6xf32>, %w: tensor<6xf32>) -> tensor<2x4x6xf32> {
      %a, %m, %r = aten.native_layer_norm.default(%x, [6], %w, none, 1.0e-5) : (tensor<2x4x6xf32>, tensor<6xf32>) -> (tensor<2x4x6xf32>, tensor<2x4x1xf32>, tensor<2x4x1xf32>)
      %y = aten.instance_norm.default(%a, none, none, none, none, true, 0.1, 1.0e-5, false) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32>
      func.return %y : tensor<2x4x6xf32>
    }
After:
    func.func @forward(%x: tensor<2x4x6xf32>, %w: tensor<6xf32>) -> tensor<2x4x6xf32> {
      %a = aten.layer_norm.default(%x, [6], %w, none, 1.0e-05) : (tensor<2x4x6xf32>, tensor<6xf32>) -> tensor<2x4x6xf32>
      %y = aten.group_norm.default(%a, 4, none, none, 1.0e-05) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32>
      func.return %y : tensor<2x4x6xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal
from stepwell.ir.types import dims
from stepwell.translate.rewrites.aten.respelling import Respell, Respelled


@dataclass(frozen=True)
class NormaliseNorm(Respell):
    """`native_layer_norm`, `native_group_norm`, `instance_norm` to `layer_norm`, `group_norm`."""

    name: ClassVar[str] = "normalise-norm"
    takes_empty: ClassVar[bool] = False
    bound: ClassVar[Bound] = Bound(1e-5, 1e-5, "instance and group norm sum in another order")
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.NativeLayerNormDefault,
        aten.NativeGroupNormDefault,
        aten.InstanceNormDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> Respelled | Refusal | None:
        """The statistics are the tensor's own and nobody else reads them."""
        if any(statistic.uses for statistic in op.results[1:]):
            return Refusal("the mean or deviation that it saves for training is used")
        affine = {"input": op.operands[0], "weight": op.arg("weight"), "bias": op.arg("bias")}
        affine["eps"] = op.arg("eps")
        if isinstance(op, aten.NativeLayerNormDefault):
            shape = op.arg("normalized_shape")
            return Respelled(op, aten.LayerNormDefault, {**affine, "normalized_shape": shape})
        if isinstance(op, aten.NativeGroupNormDefault):
            groups = op.arg("group")
            return Respelled(op, aten.GroupNormDefault, {**affine, "num_groups": groups})
        if not op.arg("use_input_stats"):
            return Refusal("an instance norm over running statistics is a batch norm")
        channels = dims(op.operands[0].type)[1]
        if not isinstance(channels, int):
            return Refusal("the number of channels is symbolic")
        if all(size == 1 for size in dims(op.operands[0].type)[2:]):
            return Refusal("a channel has one element, whose deviation is rounding alone")
        return Respelled(op, aten.GroupNormDefault, {**affine, "num_groups": channels})
