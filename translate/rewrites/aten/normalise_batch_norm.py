"""Spell batch norm over running statistics as `aten.batch_norm.default` in evaluation mode.

Before:
    func.func @forward(%x: tensor<2x3x4x4xf32>, %m: tensor<3xf32>, %v: tensor<3xf32>) -> tensor<2x3x4x4xf32> {
      %q = aten.mul.Tensor(%v, %v) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %y, %a, %b = aten._native_batch_norm_legit_no_training.default(%x, none, none, %m, %q, 0.1, 1.0e-5) : (tensor<2x3x4x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<2x3x4x4xf32>, tensor<0xf32>, tensor<0xf32>)
      func.return %y : tensor<2x3x4x4xf32>
    }
After:
    func.func @forward(%x: tensor<2x3x4x4xf32>, %m: tensor<3xf32>, %v: tensor<3xf32>) -> tensor<2x3x4x4xf32> {
      %q = aten.mul.Tensor(%v, %v) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %y = aten.batch_norm.default(%x, none, none, %m, %q, false, 0.1, 1.0e-05, false) : (tensor<2x3x4x4xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3x4x4xf32>
      func.return %y : tensor<2x3x4x4xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.ir.types import dims
from stepwell.translate.rewrites.aten.respelling import Respell, Respelled


@dataclass(frozen=True)
class NormaliseBatchNorm(Respell):
    """Every batch norm in evaluation mode to `aten.batch_norm`."""

    name: ClassVar[str] = "normalise-batch-norm"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten._NativeBatchNormLegitNoTrainingDefault,
        aten._BatchNormNoUpdateDefault,
        aten.NativeBatchNormDefault,
        aten.InstanceNormDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> Respelled | Refusal | None:
        """Statistics are given, not computed, and the saved ones are not read."""
        if isinstance(op, aten.InstanceNormDefault):
            if op.arg("use_input_stats"):
                return None
            if op.operand("running_mean") is None or op.operand("running_var") is None:
                return Refusal("it has no statistics")
        elif any(saved.uses for saved in op.results[1:]):
            return Refusal("the mean or deviation that it saves for training is used")
        if "training" in op.SCHEMA.by_name and op.arg("training"):
            return Refusal(
                "exported in training mode: it normalises by the batch; call model.eval()"
            )
        channels = dims(op.operands[0].type)[1:2]
        names = ("weight", "bias", "running_mean", "running_var")
        if any(
            (held := op.operand(name)) is not None and dims(held.type) != channels for name in names
        ):
            return Refusal("its parameters are not one number for each channel")
        taken = ("input", "weight", "bias", "running_mean", "running_var", "momentum", "eps")
        arguments = {name: op.arg(name) for name in taken}
        arguments |= {"training": False, "cudnn_enabled": False}
        return Respelled(op, aten.BatchNormDefault, arguments)
