"""Spell every other product as `aten.bmm.default` on batches of matrices.

Vectors get an axis of 1, batch axes are broadcast to each other and flattened to one. A matrix on
the right of a batch is not repeated: the rows of all batches are one matrix. `baddbmm` is the
product and a sum.

Before:
    %z = aten.matmul.default(%x, %y) : (tensor<2x5x3x4xf32>, tensor<5x4x6xf32>) -> tensor<2x5x3x6xf32>
After:
    %0 = aten.view.default(%x, [10, 3, 4]) : (tensor<2x5x3x4xf32>) -> tensor<10x3x4xf32>
    %1 = aten.view.default(%y, [1, 5, 4, 6]) : (tensor<5x4x6xf32>) -> tensor<1x5x4x6xf32>
    %2 = aten.expand.default(%1, [2, 5, 4, 6]) : (tensor<1x5x4x6xf32>) -> tensor<2x5x4x6xf32>
    %3 = aten.view.default(%2, [10, 4, 6]) : (tensor<2x5x4x6xf32>) -> tensor<10x4x6xf32>
    %4 = aten.bmm.default(%0, %3) : (tensor<10x3x4xf32>, tensor<10x4x6xf32>) -> tensor<10x3x6xf32>
    %z = aten.view.default(%4, [2, 5, 3, 6]) : (tensor<10x3x6xf32>) -> tensor<2x5x3x6xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.building import emit, expand, static_dims, view
from stepwell.translate.rewrites.layers.matmul_to_linear import transposed


@dataclass(frozen=True)
class Product:
    """`[*batch, m, k] @ [*batch, k, n]`; plus `added` if given."""

    op: SchemaOp
    left: SSAValue
    right: SSAValue
    batch: tuple[int, ...]
    m: int
    k: int
    n: int
    added: SSAValue | None


@dataclass(frozen=True)
class MatmulToBmm(Rewrite[Product]):
    """`matmul`, `mm`, `mv`, `dot`, `baddbmm` to `bmm`."""

    name: ClassVar[str] = "matmul-to-bmm"
    bound: ClassVar[Bound] = roundings("the product may be summed in another order")
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        aten.MatmulDefault,
        aten.MmDefault,
        aten.MvDefault,
        aten.DotDefault,
        aten.BaddbmmDefault,
    )

    def match(self, op: SchemaOp, program: Program) -> Product | Refusal | None:
        """Guards: static shapes, no factors, and no linear layer in disguise."""
        added = op.operands[0] if isinstance(op, aten.BaddbmmDefault) else None
        left, right = op.operands[0:2] if added is None else op.operands[1:3]
        a, b = static_dims(left), static_dims(right)
        if len(dims(right.type)) == 2 and (weight_key(right) or transposed(right)):
            return None
        if a is None or b is None:
            return Refusal("the shapes are symbolic")
        if added is not None and (op.arg("alpha") != 1 or op.arg("beta") != 1):
            return Refusal("alpha or beta is not 1")
        k, n = a[-1], b[-1] if len(b) > 1 else 1
        if len(b) <= 2 and len(a) > 1:
            return Product(op, left, right, (), prod(a[:-1]), k, n, added)
        m = a[-2] if len(a) > 1 else 1
        batch = broadcast(a[:-2], b[:-2])
        return Product(op, left, right, batch, m, k, n, added)

    def build(self, match: Product, rw: Rewriter) -> None:
        """Write the views and expands of both sides, the product, the view back and the sum."""
        result = match.op.results[0]
        count = prod(match.batch)
        left = self._batches(rw, match.left, match.batch, (match.m, match.k))
        right = self._batches(rw, match.right, match.batch, (match.k, match.n))
        shape = tensor([count, match.m, match.n], element(result.type))
        product = emit(rw, aten.BmmDefault.make(left, right, result_types=[shape]))
        value = view(rw, product, dims(result.type))
        if match.added is not None:
            total = aten.AddTensor.make(value, match.added, result_types=[result.type])
            value = emit(rw, total)
        rw.replace(match.op, [value])

    def _batches(
        self, rw: Rewriter, value: SSAValue, batch: tuple[int, ...], matrix: tuple[int, int]
    ) -> SSAValue:
        held = static_dims(value)
        assert held is not None
        if batch and len(held) >= 2:
            own = (1,) * (len(batch) - len(held) + 2) + held[:-2]
            value = expand(rw, view(rw, value, (*own, *matrix)), (*batch, *matrix))
        elif batch:
            value = expand(rw, view(rw, value, (*(1,) * len(batch), *matrix)), (*batch, *matrix))
        return view(rw, value, (prod(batch), *matrix))


def broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """The common batch shape of two that torch has found to agree."""
    rank = max(len(one), len(other))
    pairs = zip((1,) * (rank - len(one)) + one, (1,) * (rank - len(other)) + other, strict=True)
    return tuple(b if a == 1 else a for a, b in pairs)
