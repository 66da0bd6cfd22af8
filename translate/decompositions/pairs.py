"""Rewrites of real and imaginary parts that are concatenated to pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.types import dims, element, tensor
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.complex import planar_parts
from stepwell.translate.decompositions.values import Value, cat
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers


@lowers(
    "aten.slice.Tensor",
    to="aten",
    phases=("xnnpack/normalize", "tosa/decompose"),
    sample="""
    %p = aten.cat.default([%a, %b], 1) : (tensor<3x1xf32>, tensor<3x1xf32>) -> tensor<3x2xf32>
    %y = aten.slice.Tensor(%p, 1, 1, 2, 1) : (tensor<3x2xf32>) -> tensor<3x1xf32>
    """,
)
def part_of_pair(x: Value, *, op: Any, out: Out) -> Value | None:
    """Replace a slice of concatenated real and imaginary parts by the part."""
    planar, at = planar_parts(x.ssa), op.arg("start") or 0
    if not planar or out.shape[-1] != 1 or x.axis(op.arg("dim")) != x.rank - 1:
        return None
    return Value(planar[at], x.b) if at in (-2, -1, 0, 1) else None


@lowers(
    "aten.permute.default",
    to="aten",
    phases=("xnnpack/normalize", "tosa/decompose"),
    sample="""
    %p = aten.cat.default([%a, %b], 2) : (tensor<3x4x1xf32>, tensor<3x4x1xf32>) -> tensor<3x4x2xf32>
    %y = aten.permute.default(%p, [0, 2, 1]) : (tensor<3x4x2xf32>) -> tensor<3x2x4xf32>
    """,
)
def permute_parts(x: Value, order: Sequence[int], *, out: Out) -> Value | None:
    """Concatenate real and imaginary parts on the axis to which a permutation moves them."""
    planar, order = planar_parts(x.ssa), [x.axis(number) for number in order]
    at = order.index(x.rank - 1) if planar else x.rank - 1
    if at == x.rank - 1:
        return None
    shape = (*out.shape[:at], 1, *out.shape[at + 1 :])
    rest = [number for number in order if number != x.rank - 1]
    parts = [Value(part, x.b).view(*x.shape[:-1]).permute(rest).view(*shape) for part in planar]
    return cat(parts, at)


@recipe("interleaved_rows")
def interleaved_rows(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the rows of two weights by turns."""
    return torch.stack([one, other], 1).flatten(0, 1)


@lowers(
    "aten.cat.default",
    to="aten",
    phases=("xnnpack/absorb", "tosa/absorb"),
    bound=roundings("a wider product may sum in another order"),
    sample="""
    %v = stepwell.weight <"v"> "parameter" : tensor<5x4xf32>
    %w = stepwell.weight <"w"> "parameter" : tensor<5x4xf32>
    %a = aten.linear.default(%x, %v) : (tensor<3x4xf32>, tensor<5x4xf32>) -> tensor<3x5xf32>
    %b = aten.linear.default(%x, %w) : (tensor<3x4xf32>, tensor<5x4xf32>) -> tensor<3x5xf32>
    %c = aten.view.default(%a, [3, 5, 1]) : (tensor<3x5xf32>) -> tensor<3x5x1xf32>
    %d = aten.view.default(%b, [3, 5, 1]) : (tensor<3x5xf32>) -> tensor<3x5x1xf32>
    %y = aten.cat.default([%c, %d], 2) : (tensor<3x5x1xf32>, tensor<3x5x1xf32>) -> tensor<3x5x2xf32>
    """,
)
def interleave_products(*, op: Any, out: Out, b: Rewriter) -> Value | None:
    """Compute pairs of real and imaginary parts by one product or convolution of both, instead of
    by a concatenation of single numbers.
    """
    planar = planar_parts(op.results[0])
    layers = [part.owner.operands[0] for part in planar if isinstance(part.owner, aten.ViewDefault)]
    if len(layers) != 2 or not all(layer.has_one_use() for layer in layers):
        return None
    one, other = (layer.owner for layer in layers)
    if not isinstance(one, aten.LinearDefault | aten.ConvolutionDefault):
        return None
    if type(other) is not type(one):
        return None
    assert isinstance(other, SchemaOp)
    weights = [layer.operand("weight") for layer in (one, other)]
    keys = [weight_key(weight) for weight in weights if weight is not None]
    is_same = one.operands[0] is other.operands[0] and one.properties == other.properties
    if not is_same or None in keys or len(one.operands) > 2 or len(other.operands) > 2:
        return None
    weight = b.weight(b.weights.derive("interleaved_rows", [str(key) for key in keys]))
    shape = list(dims(layers[0].type))
    at = 1 if isinstance(one, aten.ConvolutionDefault) else len(shape) - 1
    count = shape[at]
    shape[at] = count * 2
    made = remade(one, [one.operands[0], weight], [tensor(shape, element(layers[0].type))])
    y = Value(b.insert(made).results[0], b).view(*shape[:at], count, 2, *shape[at + 1 :])
    order = [number for number in range(len(shape) + 1) if number != at + 1]
    return y.permute([*order, at + 1]).view(*out.shape)


RULES = lowerings_of(__name__)
