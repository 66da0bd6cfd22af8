"""Two linear layers in a row, with nothing in between, are one.

`B (A x + a) + b = (B A) x + (B a + b)`. The product is computed in double precision at compile time.
It is done only where one layer multiplies no more than the two: a narrow layer between two wide
ones (a low-rank weight) is there to save work.

Before:
    %a = stepwell.weight <"a"> "parameter" : tensor<8x4xf32>
    %b = stepwell.weight <"b"> "parameter" : tensor<3x8xf32>
    %h = aten.linear.default(%x, %a) : (tensor<2x4xf32>, tensor<8x4xf32>) -> tensor<2x8xf32>
    %y = aten.linear.default(%h, %b) : (tensor<2x8xf32>, tensor<3x8xf32>) -> tensor<2x3xf32>
After:
    %0 = stepwell.weight <"b#merged_weights.6fe1f5dbb3d1"> "constant" : tensor<3x4xf32>
    %y = aten.linear.default(%x, %0) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import f32
from stepwell.ir.numerics import Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.ir.weights import recipe


@recipe("merged_weights")
def merged_weights(outer: torch.Tensor, inner: torch.Tensor) -> torch.Tensor:
    """`[out, hidden] · [hidden, in]`, summed in double precision."""
    return (outer.double() @ inner.double()).to(outer.dtype)


@recipe("merged_biases")
def merged_biases(outer: torch.Tensor, inner: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
    """`[out, hidden] · [hidden]`, plus the outer bias if there is one."""
    product = outer.double() @ inner.double()
    return (product + more[0].double() if more else product).to(outer.dtype)


@dataclass(frozen=True)
class TwoLinears:
    """The keys of the outer and the inner layer's weight and bias."""

    op: SchemaOp
    inner: SchemaOp
    weights: tuple[str, str]
    biases: tuple[str | None, str | None]


@dataclass(frozen=True)
class MergeLinears(Rewrite[TwoLinears]):
    """`linear(linear(x, A, a), B, b)` to `linear(x, B A, B a + b)`."""

    name: ClassVar[str] = "merge-linears"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.LinearDefault,)
    bound: ClassVar[Bound] = roundings("two sums of products as one")
    deviation: ClassVar[Deviation | None] = Deviation(
        "infinities between the layers no longer meet, which gives NaN"
    )
    """Infinite features of the inner layer cancel to NaN in the outer one, unless merged."""

    def match(self, op: SchemaOp, program: Program) -> TwoLinears | Refusal | None:
        """Guards: constant float32 weights, nobody else reads the inner layer, no more products."""
        inner = op.operands[0].owner
        if not isinstance(inner, aten.LinearDefault):
            return None
        if element(op.results[0].type) != f32:
            return Refusal("a product of weights would be rounded to fewer than 24 bits")
        keys = tuple(weight_key(layer.operands[1]) for layer in (op, inner))
        biases = [layer.operand("bias") for layer in (op, inner)]
        held = tuple(None if bias is None else weight_key(bias) for bias in biases)
        unknown = any(b is not None and k is None for b, k in zip(biases, held, strict=True))
        if None in keys or unknown:
            return Refusal("a layer's weights are computed at run time")
        if len(tuple(inner.results[0].uses)) > 1:
            return Refusal("the inner layer is read by others too")
        outer_key, inner_key = keys
        assert outer_key is not None and inner_key is not None
        sizes = [dims(program.weights.type_of(key)) for key in (outer_key, inner_key)]
        if any(len(size) != 2 for size in sizes):
            return Refusal("a weight is a vector: its layer has no axis of outputs")
        (out, hidden), (_, given) = sizes
        assert isinstance(out, int) and isinstance(hidden, int) and isinstance(given, int)
        if out * given > hidden * (out + given):
            return Refusal(f"one layer of {out}×{given} multiplies more than the two")
        return TwoLinears(op, inner, (outer_key, inner_key), (held[0], held[1]))

    def build(self, match: TwoLinears, rw: Rewriter) -> None:
        """Derive the product and the bias."""
        outer, inner = match.weights
        weight = rw.weight(rw.weights.derive("merged_weights", [outer, inner]))
        over, under = match.biases
        if under is not None:
            sources = [outer, under] if over is None else [outer, under, over]
            over = rw.weights.derive("merged_biases", sources)
        bias = [rw.weight(over)] if over is not None else []
        new = aten.LinearDefault.make(
            match.inner.operands[0], weight, *bias, result_types=[match.op.results[0].type]
        )
        rw.replace(match.op, [rw.insert(new).results[0]])
