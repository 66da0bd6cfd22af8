"""Spell 2-D poolings one way: values only, and the stride written out.

`max_pool2d_with_indices` gives indices that only training and unpooling read; a missing stride
is the kernel's size.

Before:
    %y, %i = aten.max_pool2d_with_indices.default(%x, [2]) : (tensor<1x3x8x8xf32>) -> (tensor<1x3x4x4xf32>, tensor<1x3x4x4xi64>)
    func.return %y : tensor<1x3x4x4xf32>
After:
    %y = aten.max_pool2d.default(%x, [2, 2], [2, 2], [0, 0], [1, 1], false) : (tensor<1x3x8x8xf32>) -> tensor<1x3x4x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.translate.rewrites.spelling.maxima import reads_their_indices
from stepwell.translate.rewrites.spelling.respelling import Respell, Respelled


@dataclass(frozen=True)
class NormalisePooling(Respell):
    """Max and average pools with every list written out."""

    name: ClassVar[str] = "normalise-pooling"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.MaxPool2dWithIndicesDefault,
        aten.MaxPool2dDefault,
        aten.AvgPool2dDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> Respelled | Refusal | None:
        """Nobody reads the indices."""
        if refusal := reads_their_indices(op):
            return refusal
        kernel, stride = op.arg("kernel_size"), op.arg("stride")
        arguments = {"self": op.operands[0], "kernel_size": kernel, "stride": stride or kernel}
        form = aten.MaxPool2dDefault
        if isinstance(op, aten.AvgPool2dDefault):
            form = aten.AvgPool2dDefault
            more = ("padding", "ceil_mode", "count_include_pad", "divisor_override")
        else:
            more = ("padding", "dilation", "ceil_mode")
        arguments |= {name: op.arg(name) for name in more}
        if isinstance(op, form) and op.present() == arguments:
            return None
        return Respelled(op, form, arguments)
