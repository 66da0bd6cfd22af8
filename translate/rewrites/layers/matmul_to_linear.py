"""Spell a product with a transposed matrix or a weight as `aten.linear.default`.

`addmm(b, x, wᵀ)`, `mm(x, wᵀ)` and `matmul(x, w)` with a matrix on the right are what a linear layer
decomposes to. Where the right side is a weight that is not transposed, its transpose is a derived
weight: a recipe, no copy. A bias of one row is the linear's, any other is added behind it.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<4x3xf32>
    %b = stepwell.weight <"b"> "parameter" : tensor<4xf32>
    %v = stepwell.weight <"v"> "parameter" : tensor<3x4xf32>
    %t = aten.permute.default(%w, [1, 0]) : (tensor<4x3xf32>) -> tensor<3x4xf32>
    %p = aten.addmm.default(%b, %x, %t) : (tensor<4xf32>, tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    %q = aten.mm.default(%x, %v) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    func.return %p, %q : tensor<2x4xf32>, tensor<2x4xf32>
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<4x3xf32>
    %b = stepwell.weight <"b"> "parameter" : tensor<4xf32>
    %0 = stepwell.weight <"v#transpose.6b771fc4db64"> "constant" : tensor<4x3xf32>
    %p = aten.linear.default(%x, %w, %b) : (tensor<2x3xf32>, tensor<4x3xf32>, tensor<4xf32>) -> tensor<2x4xf32>
    %q = aten.linear.default(%x, %0) : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
    func.return %p, %q : tensor<2x4xf32>, tensor<2x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites.building import become, emit, emit_as
from stepwell.translate.rewrites.constants.recipes import derive


@dataclass(frozen=True)
class RightProduct:
    """`x @ wᵀ`; `w` is there already, or is the transpose of the weight `key`."""

    op: SchemaOp
    x: SSAValue
    w: SSAValue | None
    key: str | None
    bias: SSAValue | None
    added: SSAValue | None


@dataclass(frozen=True)
class MatmulToLinear(Rewrite[RightProduct]):
    """`addmm`, `mm`, `matmul` with a transposed matrix or a weight on the right to `linear`."""

    name: ClassVar[str] = "matmul-to-linear"
    bound: ClassVar[Bound] = roundings("the product may be summed in another order")
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.AddmmDefault,
        aten.MmDefault,
        aten.MatmulDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> RightProduct | Refusal | None:
        """Guards: a matrix on the right, transposed or constant; no factors."""
        added = op.operands[0] if isinstance(op, aten.AddmmDefault) else None
        x, right = op.operands[-2:] if added is None else op.operands[1:3]
        if len(dims(right.type)) != 2:
            return None
        if added is not None and (op.arg("alpha") != 1 or op.arg("beta") != 1):
            return Refusal("alpha or beta is not 1")
        w = transposed(right)
        key = weight_key(right) if w is None else None
        if w is None and key is None:
            return None
        bias = added if added is not None and is_row(added, right) else None
        return RightProduct(op, x, w, key, bias, added if bias is None else None)

    def build(self, match: RightProduct, rw: Rewriter) -> None:
        """Write the transposed weight, the linear and the sum, as far as needed."""
        result, w = match.op.results[0], match.w
        if w is None:
            assert match.key is not None
            w = derive(rw, "transpose", [match.key], order=[1, 0])
        new = aten.LinearDefault.make(match.x, w, match.bias, result_types=[result.type])
        if match.added is None:
            rw.replace(match.op, [emit_as(rw, new, result)])
            return
        become(rw, match.op, aten.AddTensor, emit(rw, new), match.added)


def transposed(value: SSAValue) -> SSAValue | None:
    """The matrix that a value is the transpose of."""
    owner = value.owner
    if isinstance(owner, aten.PermuteDefault) and owner.arg("dims") == [1, 0]:
        return owner.operands[0]
    return None


def is_row(bias: SSAValue, matrix: SSAValue) -> bool:
    """Whether a bias is one row as wide as the product."""
    return dims(bias.type) == dims(matrix.type)[1:]
