"""Remove assertions about a tensor that its type proves.

`torch.export` records `_assert_tensor_metadata` before casts. Types here are verified, so that a
dtype that agrees needs no check at run time; the device is the target's business.

Before:
    aten._assert_tensor_metadata.default(%x, none, none, f32) : (tensor<2x3xf32>) -> ()
    %y = aten.neg.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
After:
    %y = aten.neg.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element


@dataclass(frozen=True)
class RemoveProvenAssert(Rewrite[SchemaOp]):
    """`_assert_tensor_metadata` of what the type says to nothing."""

    name: ClassVar[str] = "remove-proven-assert"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten._AssertTensorMetadataDefault,)

    def match(self, op: SchemaOp, program: Program) -> SchemaOp | Refusal | None:
        """The stated dtype and sizes are the type's, and no strides are asked for."""
        held = op.operands[0].type
        dtype, sizes = op.arg("dtype"), op.arg("size")
        if dtype is not None and dtype != element(held):
            return Refusal(f"it asserts dtype {dtype} of {held}: it fails at run time")
        if sizes is not None and tuple(sizes) != dims(held):
            return Refusal("it asserts sizes that the type does not prove")
        if op.arg("stride") is not None:
            return Refusal("it asserts strides, which types do not have")
        return op

    def build(self, match: SchemaOp, rw: Rewriter) -> None:
        """Take the assertion away."""
        rw.erase(match)
