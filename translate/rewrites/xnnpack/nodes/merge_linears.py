"""Fusion: merge two consecutive linear layers with no op between them into one.

`B (A x + a) + b = (B A) x + (B a + b)`. The product is computed in double precision at compile
time. The merge is done only where one layer multiplies no more than the two: a narrow layer between
two wide ones (a low-rank weight) is there to save work.

rule merge-linears
    `linear(linear(x, A, a), B, b)` to `linear(x, B A, B a + b)`.
Before:
    %h = aten.linear.default(%x, %a, $under)
    %y = aten.linear.default(%h, %b, $over) : (…) -> tensor<$*S x $E>
After:
    %w = weight merged_weights(%b, %a)
    %c = merged_bias(%b, $under, $over)
    %y = aten.linear.default(%x, %w, %c)
where is_single($E) for accuracy else "a product of weights would be rounded to fewer than 24 bits"
where are_constants(%a, %b, $under, $over) else "a layer's weights are computed at run time"
where reads_once(%h) for cost else "the inner layer is read by others too"
where are_matrices(%a, %b) else "a weight is a vector: its layer has no axis of outputs"
unless multiplies_more(%a, %b) for cost
proven is_finite(%h) else "infinities between the layers no longer meet, which gives NaN"
bound of roundings: "two sums of products as one"
for %a = weight : tensor<8 x 4 x f32>
for %b = weight : tensor<3 x 8 x f32>
for %x = "tensor<2x4xf32>", $S = [2, 3]
not for %b = weight : tensor<8 x f32>; $S = [2]
not for %a = weight : tensor<4 x 40 x f32>; %b = weight : tensor<30 x 4 x f32>;
    %x = "tensor<2x40xf32>", $S = [2, 30]
not for %a = weight : tensor<8 x 4 x f16>; %b = weight : tensor<3 x 8 x f16>;
    %c = weight : tensor<8 x f16>; %d = weight : tensor<3 x f16>; %x = "tensor<2x4xf16>", $E = f16,
    $under = %c, $over = %d
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.types import dims
from stepwell.ir.weights import recipe
from stepwell.translate.range_analysis import is_finite  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.translate.rules import read_rules


@recipe("merged_weights")
def merged_weights(outer: torch.Tensor, inner: torch.Tensor) -> torch.Tensor:
    """Compute `[out, hidden] · [hidden, in]`, summed in double precision."""
    return (outer.double() @ inner.double()).to(outer.dtype)


@recipe("merged_biases")
def merged_biases(outer: torch.Tensor, inner: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
    """Compute `[out, hidden] · [hidden]`, plus the outer bias if there is one."""
    product = outer.double() @ inner.double()
    return (product + more[0].double() if more else product).to(outer.dtype)


def are_constants(*values: SSAValue | None) -> bool:
    """Whether the operands that are present are weights of the program."""
    return all(value is None or weight_key(value) is not None for value in values)


def are_matrices(*values: SSAValue) -> bool:
    """Whether the weights have two axes."""
    return all(len(dims(value.type)) == 2 for value in values)


def multiplies_more(inner: SSAValue, outer: SSAValue) -> Refusal | None:
    """Refuse a merge whose layer needs more products than the two layers."""
    (out, hidden), (_, given) = dims(outer.type), dims(inner.type)
    assert isinstance(out, int) and isinstance(hidden, int) and isinstance(given, int)
    if out * given > hidden * (out + given):
        return Refusal(f"one layer of {out}×{given} needs more products than the two layers")
    return None


def merged_bias(
    rw: Rewriter, outer: SSAValue, under: SSAValue | None, over: SSAValue | None
) -> SSAValue | None:
    """Return the bias of the merged layer, if either layer has one."""
    if under is None:
        return over
    sources = [weight_key(value) for value in (outer, under, over) if value is not None]
    return rw.weight(rw.weights.derive("merged_biases", [key for key in sources if key]))


(MergeLinears,) = RULES = read_rules(__doc__, globals())
